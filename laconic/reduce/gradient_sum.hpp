// reduce/gradient_sum.hpp — the sum of a gradient over data-parallel ranks, under a policy.
//
// One flat buffer per block of the model. The computing thread posts a block as
// soon as its gradient is complete and goes on with the block before it; the
// progress thread carries it. After wait() every buffer holds the sum, with the same
// bits on every rank.
//
//   sum->begin(step);
//   for each block, last to first: ... backward ... sum->post(block, buffer);
//   sum->wait();
//   if (finite) sum->commit(); else sum->abandon();
//
// Sums, not means: contributions carry their weight (samples here / samples in
// all) already, as those of microbatches do. So dp ranks train the same model as
// one process that takes their shares as microbatches.
//
// Whoever needs a block before the others are there asks for that one: has_arrived(block),
// wait(block). The step ends all the same with commit() or abandon() of all.
//
// When wait() returns, the sums are here; what other ranks need from here may still be queued, so
// flush() the engine before it goes. A sum belongs to one thread, the computing one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "laconic/base/dtype.hpp"
#include "laconic/base/named.hpp"
#include "laconic/codec/device_memory.hpp"
#include "laconic/collective/run.hpp"
#include "laconic/link/codec_override.hpp"
#include "laconic/reduce/shared_low_rank.hpp"

namespace laconic {

enum class ReduceMethod : std::uint8_t {
  codec,      // each block by itself, while backward goes on
  power_sgd,  // factors of matrices; the rest exactly
};

// Who adds what where; the first three are algorithms of collective/plan.hpp.
enum class SumAlgorithm : std::uint8_t { direct, ring, doubling, native };
inline constexpr auto kSumAlgorithmNames =
    std::to_array<Named<SumAlgorithm>>({{SumAlgorithm::direct, "direct"},
                                        {SumAlgorithm::ring, "ring"},
                                        {SumAlgorithm::doubling, "doubling"},
                                        {SumAlgorithm::native, "native"}});

struct GradientPolicy {
  ReduceMethod method = ReduceMethod::codec;
  CodecSpec up = Raw{};
  CodecSpec down = Raw{};
  bool up_feedback = true;  // without effect on exact codecs
  bool down_feedback = true;
  std::int64_t warm_up_steps = 0;  // exact in the first so many steps
  // Sums of direct are in the order of ranks, whatever the size of a block.
  SumAlgorithm algorithm = SumAlgorithm::direct;
  SumAlgorithm raw_algorithm = SumAlgorithm::direct;  // of sums that are bypassed
  std::int64_t rank = 16;                             // power_sgd
  double min_ratio = 1.5;  // power_sgd: matrices that would shrink by less travel raw
  // power_sgd: the factors of each block in sums of its own while backward goes on, instead of
  // those of all blocks in two flat ones afterwards. With exact factors the same bits, in more
  // messages.
  bool by_block = false;
  std::uint64_t seed = 0;
  std::uint64_t lane_bytes = 0;  // of raw values that a lane has of each chunk; 0: as links like it
};
// Every reason why the policy cannot work for buffers of this dtype, by key ("codec").
Problems check(const GradientPolicy& policy, Dtype dtype, int members);
// The policy with another codec in the place of every lossy one: of power_sgd, that of the factors.
GradientPolicy with_codec(GradientPolicy policy, const CodecSpec& codec);
// Every reason why sums of this policy cannot be overridden so, by key as above. To bypass is
// always possible; another codec must be lossy, as what it replaces is, and be added the same way.
Problems check(const CodecOverride& codec_override, const GradientPolicy& policy, Dtype dtype,
               int members);

// What lies in a block's flat buffer, in order; nothing, where the block is another rank's. Blocks
// are numbered as in the whole model, so that messages of several sums compare in urgency.
struct BlockLayout {
  std::string name;
  std::vector<NamedTensor> tensors;
};
std::uint64_t elements_of(const BlockLayout& block);

class GradientSum {
 public:
  virtual ~GradientSum() = default;
  virtual void begin(std::uint64_t step) = 0;
  // Begins a step that must be abandoned: contributions are summed exactly, and nothing that is
  // outstanding is added. What is remembered stays as it is.
  virtual void begin_shadow(std::uint64_t step) { begin(step); }
  // The buffer must stay, untouched, until wait() returns or the sum is gone. Every block that has
  // elements once a step, in any order, which need not be the same on all ranks. Encodes nothing
  // and waits for nobody, but for what is outstanding after load() or an override. `ready`: for a
  // buffer on a GPU, when its gradient is complete; other sums go on meanwhile.
  virtual void post(std::size_t block, std::byte* buffer, const Ready& ready = {}) = 0;
  virtual void wait() = 0;
  // The same for one block, which was posted in this step or has no elements. Of power_sgd whose
  // factors travel together, all blocks arrive together.
  virtual bool has_arrived(std::size_t block) const = 0;
  virtual void wait(std::size_t block) = 0;
  virtual void commit() = 0;
  virtual void abandon() = 0;

  // Starts or ends measuring what this rank sends, in steps that begin from here on; starting also
  // forgets what was measured before. What travels raw is not measured. Requires, for both: nothing
  // is under way.
  virtual void measure_fidelity(bool /*is_on*/) {}
  virtual Fidelity fidelity() const { return {}; }

  // From the next step on, instead of as before; the same on all ranks. Sums that lose nothing are
  // what they were. With another codec residuals go on. Bypassed sums are those of contributions
  // and of all that is outstanding: residuals leave with the first of them that is committed, so
  // that nothing owed is lost for ever, and none arise until sums are encoded again. Low-rank bases
  // stay. Throws ConfigError as check() says. Requires: no step is open.
  virtual void override_codec(const CodecOverride& codec_override) = 0;

  // What this rank remembers, named; what a checkpoint holds of it. Requires: no step is open.
  virtual NamedFloats save() const = 0;
  virtual void load(const NamedFloats& state) = 0;  // throws ConfigError with every reason
};

// `group` is this rank's dp group. With one member every sum is the identity, but for the first
// step after load(), which adds what was outstanding. Throws ConfigError with every reason.
std::unique_ptr<GradientSum> make_gradient_sum(ProgressThread& progress_thread, const Group& group,
                                               const GradientPolicy& policy, Traffic traffic,
                                               const std::vector<BlockLayout>& blocks, Dtype dtype,
                                               bool is_on_device = false);
// Whether buffers of such sums may be in the memory of a GPU, which then encodes, decodes and adds.
// The caller says in post() when a buffer is ready, and after wait() lets what uses it wait for the
// codec stream (codec/device_memory.hpp). False for codecs whose payloads are added, unless there
// is but one member; for codecs that GPUs lack, for all but f32, and in builds without CUDA.
bool sums_on_device(const GradientPolicy& policy, Dtype dtype, int members);
// The same of a build with CUDA, whatever this one is.
bool gpus_could_sum(const GradientPolicy& policy, Dtype dtype, int members);

// For one rank, without a network: adds to its first step what a larger group left outstanding.
std::unique_ptr<GradientSum> make_lone_sum(const GradientPolicy& policy,
                                           const std::vector<BlockLayout>& blocks, Dtype dtype,
                                           bool is_on_device = false);

// The states that `members` ranks begin with, from those that other ranks saved (by their member).
// Equally many: as they were. Otherwise what is outstanding in total stays the same: residuals are
// summed over the old ranks, and each new one takes an equal share; what all ranks share (bases)
// is taken from the first. Throws ConfigError when the states are not of this policy.
std::vector<NamedFloats> reshard(const std::vector<NamedFloats>& saved, int members,
                                 const GradientPolicy& policy,
                                 const std::vector<BlockLayout>& blocks);

}  // namespace laconic
