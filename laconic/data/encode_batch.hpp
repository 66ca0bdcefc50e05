// data/encode_batch.hpp — encodes texts with several threads, and keeps their order.
//
// Long texts are cut into parts where a cut changes no token (Tokeniser::next_cut), so one
// large document keeps all threads busy, and the result is the same for any
// number of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "laconic/data/source.hpp"
#include "laconic/data/tokeniser.hpp"

namespace laconic {

struct EncodedPart {
  Document owner;
  std::string_view text;
  int target = 0;              // the caller's, as given to add()
  bool ends_document = false;  // the last part of its document
  std::vector<std::int32_t> tokens;
};

class EncodeBatch {
 public:
  // Requires: the tokeniser outlives the batch. threads = 0: as many as the machine has.
  EncodeBatch(const Tokeniser& tokeniser, int threads);

  // Takes text off the front until the batch is full; returns what is left of it.
  std::string_view add(const Document& document, int target);
  bool is_full() const { return bytes_ >= kFullBytes || parts_.size() >= kFullParts; }

  // Throws what a thread has thrown.
  std::span<const EncodedPart> encode();
  void clear();

 private:
  static constexpr std::size_t kFullBytes = std::size_t{16} << 20;
  static constexpr std::size_t kFullParts = 1 << 14;

  const Tokeniser& tokeniser_;
  std::size_t threads_;
  std::size_t bytes_ = 0;
  std::vector<EncodedPart> parts_;
};

}  // namespace laconic
