// link/sample.hpp — what both ends of a delta link do alike; only they include this.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "laconic/codec/codec.hpp"
#include "laconic/link/basis_memory.hpp"
#include "laconic/link/link_spec.hpp"
#include "laconic/store/delta_store.hpp"

namespace laconic {

inline constexpr const char* kReferencesSuffix = ".references";

// The samples of a microbatch: the slices of dim 0, one for each key.
class SampleRange {
 public:
  // Throws ConfigError when the tensor has no dim 0 of `keys` slices, or is not of floats.
  SampleRange(const std::string& link, const TensorSpec& batch, std::size_t keys);
  const TensorSpec& spec() const { return spec_; }  // of one slice, without dim 0
  std::size_t bytes() const { return bytes_; }

 private:
  TensorSpec spec_;
  std::size_t bytes_ = 0;
};

// Throws ConfigError naming the link.
void require_encodable(const std::string& link, const CodecSpec& codec, const TensorSpec& tensor);

// Throws ConfigError when there are no differences or residuals of such numbers.
void require_float(const std::string& link, Dtype dtype);

// Derives a seed for every frame, the same at all ranks that share the link's seed.
std::uint64_t message_seed(std::uint64_t link_seed, std::uint64_t sequence);

std::uint64_t hash_of(ByteView record);

// Tells in which visits a frame carries the hash of its reference: once in `every` for each
// sample, but not all in the same one. In an epoch every sample is visited once, and a run of few
// epochs must compare some of them in each.
bool is_hashed(std::uint64_t key, std::uint32_t visits, int every);

// Decodes as decode() does, but the numbers stay f32 whatever the tensor's dtype is.
void decode_to_floats(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload,
                      const CodecInput& input, float* out);

// Ends what both memories of an end learned in a step.
void commit_bases(const LinkSpec& spec, BasisMemory& codec, BasisMemory& first);

// One reference on its way from a stored record to the next: f32 records are used where they lie,
// others by way of scratch.
class ReferenceUpdate {
 public:
  ReferenceUpdate(Reference kind, std::size_t count, ByteView before, std::span<std::byte> after);
  const float* before() const { return before_; }
  float* after() { return after_; }
  // Writes the record, which is undefined before. False: rounding made an infinity, so it must not
  // be kept. An f32 record is not checked: another pass over it costs a quarter of the work, and
  // finite differences lead out of its range only from beyond 1e38, where the next one tells.
  bool finish();

 private:
  Reference kind_;
  std::size_t count_;
  std::span<std::byte> record_;
  Scratch<float> scratch_;
  const float* before_;
  float* after_;
};

// Makes the store of an end when the first sample tells its size. Throws ConfigError when a later
// one has another size.
DeltaStore& ensure_store(std::unique_ptr<DeltaStore>& store, const LinkSpec& link, const char* end,
                         const TensorSpec& sample);
// Save to `path` + kReferencesSuffix and load from there. An end that has no store yet saves that
// too, so that no older file is taken for its own; a link without references removes such a file.
void save_references(DeltaStore* store, const LinkSpec& link, const std::string& path);
std::unique_ptr<DeltaStore> load_references(const LinkSpec& link, const char* end,
                                            const std::string& path);

// What was decoded of a difference, as both ends can tell: the change of the reference. Requires:
// not finished yet.
void learn_change(BasisMemory& memory, const MessageSpec& message, std::size_t index,
                  const TensorSpec& frame, ReferenceUpdate& update);

}  // namespace laconic
