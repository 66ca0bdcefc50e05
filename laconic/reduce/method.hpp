// reduce/method.hpp — the methods behind make_gradient_sum(), and what they have in common.
//
// Every method is a class in a file of its own that nobody else sees:
//
//   codec_sum.cpp      one collective per block, under way as soon as the block is posted
//   native_sum.cpp     the transport's own sum, block by block in an order all ranks share
//   power_sgd_sum.cpp  factors of all matrices after the last block (their mathematics in
//                      placed_low_rank.hpp, what travels in flat_sum.hpp)
//   lone_sum.cpp       one member: pays what larger groups left owing, then nothing
//   steered_sum.cpp    any lossy one of these and a raw one beside it, between which codec
//                      overrides choose
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "laconic/reduce/gradient_sum.hpp"

namespace laconic {

struct SumRequest {
  ProgressThread& progress_thread;
  Group group;
  GradientPolicy policy;
  Traffic traffic = Traffic::dp_gradient;
  std::vector<BlockLayout> blocks;
  Dtype dtype = Dtype::f32;
  std::uint32_t first_unit = 0;  // of tags
  bool is_on_device = false;     // see make_gradient_sum()
};

std::unique_ptr<GradientSum> make_codec_sum(const SumRequest& request);
std::unique_ptr<GradientSum> make_native_sum(const SumRequest& request);
std::unique_ptr<GradientSum> make_power_sgd_sum(const SumRequest& request);
// The sum of a policy that loses something; `encoded` is by codec or power_sgd, and is never told
// to bypass.
std::unique_ptr<GradientSum> make_steered_sum(const SumRequest& request,
                                              std::unique_ptr<GradientSum> encoded);
// Tags of methods have units below this one; those of raw sums begin here.
std::uint32_t raw_unit(const std::vector<BlockLayout>& blocks);

// --- codec method

// Whether sums of contributions are passed on without encoding them again, so that `down` is idle
// and the owner of a chunk loses as much of its own contribution as the others of theirs.
bool passes_sums_on(const GradientPolicy& policy);
bool has_up_residual(const GradientPolicy& policy);
bool has_down_residual(const GradientPolicy& policy);
// Requires: not native.
Algorithm algorithm_of(const GradientPolicy& policy);
// Where chunks begin and end: at multiples of 256 elements and of a quantiser's group, so that
// none is cut in two.
std::vector<std::uint64_t> offsets_of(const GradientPolicy& policy, std::uint64_t elements,
                                      int members);
// Codecs of the messages of a sum.
struct CodecPair {
  CodecSpec up, down;
};
// Requires: not native.
CodecPair codecs_of(const GradientPolicy& policy);
// The exact or encoded sum of a buffer by this policy.
CollectiveSpec collective_of(const Group& group, const GradientPolicy& policy, Traffic traffic,
                             std::uint32_t unit, std::uint64_t elements, Dtype dtype);
CollectiveSpec collective_of(const SumRequest& request, std::uint32_t unit, std::uint64_t elements);

// --- states (state.cpp)

// What this rank's contributions to a block have lost, and what the sums that it owns have.
std::string up_name(const BlockLayout& block);
std::string down_name(const BlockLayout& block);
// By power_sgd: what a contribution to a matrix has lost, and where its next power step starts.
std::string residual_name(const NamedTensor& tensor);
std::string basis_name(const NamedTensor& tensor);

// A number of floats that belongs at a place in a block's buffer.
struct ResidualSlice {
  std::string name;
  std::size_t block = 0;
  std::uint64_t offset = 0;
  std::uint64_t elements = 0;
};
// Where a lone rank's residuals lie: whole blocks (it owns all chunks), or tensors with power_sgd.
// Nowhere, when ranks of this policy remember nothing.
std::vector<ResidualSlice> residual_places(const GradientPolicy& policy,
                                           const std::vector<BlockLayout>& blocks);

// Where what member number `member` of so many owes lies, by the names in its state. Places may
// overlap: it owes the sum of what is there.
std::vector<ResidualSlice> owed_places(const GradientPolicy& policy,
                                       const std::vector<BlockLayout>& blocks, int members,
                                       int member);
// buffer[i] += values[i]; the second for a buffer of f32 in the memory of a GPU, on the codec
// stream, when it is ready: waits for that.
void add_floats(const std::vector<float>& values, Dtype dtype, std::byte* buffer);
void add_floats_on_device(const std::vector<float>& values, std::byte* buffer, const Ready& ready);

// All that member number `member` of so many can have in its state.
using StateSizes = std::map<std::string, std::uint64_t>;
StateSizes state_sizes(const GradientPolicy& policy, const std::vector<BlockLayout>& blocks,
                       int members, int member);
// Every name in `state` that is not in `sizes`, has another size there, or a number that is not
// finite. The second throws ConfigError with them.
Problems misfits(const NamedFloats& state, const StateSizes& sizes);
void require_fit(const NamedFloats& state, const StateSizes& sizes);

}  // namespace laconic
