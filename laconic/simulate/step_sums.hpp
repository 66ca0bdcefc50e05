// simulate/step_sums.hpp — the sums of a step over replicas and over stages that share parameters,
// as strands that ranks start and wait for (update/gradient_exchange.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "laconic/simulate/held_model.hpp"

namespace laconic {

class StepSums {
 public:
  // `held` by rank: what it has of the model, and sums. Sums of shared parameters that are late
  // leave by post_shared() alone, and are fused.
  StepSums(ProgramBuilder& builder, std::vector<HeldModel> held, bool shared_are_late = false);

  // Which sums a step has: all, or those alone of parameters that stages of one replica share.
  enum class Which : std::uint8_t { all, shared };
  // Makes the sums of a step, for all ranks, of all blocks or of those that `has` says. Those of
  // the step before stay until the next.
  void begin(std::uint64_t step, Which which = Which::all,
             const std::function<bool(std::size_t block)>& has = {});

  // --- acts of a rank, on its strand
  void post(int rank, int strand, std::size_t block);
  void post_all(int rank, int strand);
  void post_shared(int rank, int strand);
  // Sums of shared parameters that are not fused leave when those over replicas are there.
  void wait_for_all(int rank, int strand) {
    wait_for(now_[static_cast<std::size_t>(rank)], rank, strand);
  }
  void wait_for_all_before(int rank, int strand) {
    wait_for(before_[static_cast<std::size_t>(rank)], rank, strand);
  }
  // For what a block completed in the step before, if there was one.
  bool has_before() const { return !before_.empty(); }
  void wait_for_block_before(int rank, int strand, std::size_t block);

  const HeldModel& held(int rank) const { return held_[static_cast<std::size_t>(rank)]; }

 private:
  // The sums of a step that a rank takes part in.
  struct OfRank {
    struct Part {
      std::vector<std::size_t> blocks;
      int strand = 0;
      std::size_t missing = 0;  // blocks that are not posted
    };
    std::vector<Part> parts;
    std::vector<int> shared;                // strands, as HeldModel::shared_sums()
    std::vector<std::size_t> shared_ready;  // parameters that are complete
  };
  bool is_first_of(const Group& group, int rank) const;
  void add_shared_sums(int rank, std::uint64_t step);
  void post_shared_of(int rank, int strand, std::size_t block);
  void wait_for(const OfRank& sums, int rank, int strand);

  ProgramBuilder& builder_;
  const std::vector<HeldModel> held_;
  const bool shared_are_late_;
  std::vector<OfRank> now_, before_;  // by rank
};

}  // namespace laconic
