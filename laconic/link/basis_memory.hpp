// link/basis_memory.hpp — what an end of a link has learned about directions (codec transform).
//
// Some messages of a step travel in plain bits, so that both ends have the same rows: all of them
// while there is no basis, and every `refresh` steps the first few, as many as it takes to have
// twice as many rows as columns. When the step is committed both make the next basis of those rows,
// in the order of their numbers, whichever order they were packed or unpacked in. Messages that are
// asked for again travel plain and teach nothing; a step in which any was refused ends with no
// basis, at both ends.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "laconic/codec/codec.hpp"
#include "laconic/codec/transform_basis.hpp"
#include "laconic/link/message.hpp"

namespace laconic {

class BasisMemory {
 public:
  // The basis for a message of the sender, whose rows are `tensor` in all; null: plain.
  const TransformBasis* basis_for(const CodecSpec& codec, std::uint64_t step,
                                  const MessageSpec& message, const TensorSpec& tensor) const;
  // That of this step, for the receiver, whatever the message says.
  const TransformBasis* current() const { return current_ ? &*current_ : nullptr; }

  // Whether both ends learn from this payload of a message whose rows are `tensor` in all.
  static bool teaches(const CodecSpec& codec, const MessageSpec& message, const TensorSpec& tensor,
                      ByteView payload);
  // What the receiver makes of it; `index` counts the frames of a message.
  void learn(const MessageSpec& message, std::size_t index, const TensorSpec& frame,
             const float* decoded);
  void refused() { is_refused_ = true; }

  void commit(const CodecSpec& codec, std::uint64_t seed);
  void abandon();
  void forget();  // begins anew
  bool has_open() const { return !rows_.empty() || is_refused_; }

  const std::optional<TransformBasis>& basis() const { return current_; }
  void restore(std::optional<TransformBasis> basis);

 private:
  std::optional<TransformBasis> current_;
  std::map<std::pair<int, std::size_t>, std::vector<float>> rows_;  // by number and index
  std::uint64_t columns_ = 0;
  bool is_refused_ = false;
};

// Both memories of an end: of its codec, and of that of first visits. Nothing is written where
// neither has learned anything, and nothing read where there is no file; throws FileError.
void save_bases(const BasisMemory& codec, const BasisMemory& first, const std::string& path);
void load_bases(BasisMemory& codec, BasisMemory& first, const std::string& path);

}  // namespace laconic
