#include "laconic/simulate/grid_program.hpp"

#include <algorithm>
#include <cmath>

#include "laconic/base/index.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/layout/layout.hpp"

namespace laconic {

namespace {

// The model of a stage alone: nothing is fetched ahead over its ends.
ModelSpec spec_of_stage(const ModelSpec& spec, const BlockRange& range) {
  return {spec.parameters, {spec.blocks.begin() + range.begin, spec.blocks.begin() + range.end}};
}

CollectiveKind kind_of(GridCollective collective) {
  switch (collective) {
    case GridCollective::all_gather: return CollectiveKind::all_gather;
    case GridCollective::reduce_scatter: return CollectiveKind::reduce_scatter;
    case GridCollective::all_reduce: return CollectiveKind::all_reduce;
  }
  return CollectiveKind::all_gather;
}

Traffic traffic_of(const GridTraffic& t) {
  const bool is_gather = t.collective == GridCollective::all_gather;
  if (t.use == CollectiveUse::weight || t.use == CollectiveUse::vector) return Traffic::tp_weight;
  const bool is_again = t.use == CollectiveUse::input && is_gather;
  return t.is_backward && !is_again ? Traffic::tp_gradient : Traffic::tp_activation;
}

}  // namespace

GridProgram::GridProgram(ProgramBuilder& builder, const SimulationRequest& request)
    : builder_(builder),
      request_(request),
      is_trivial_(laconic::is_trivial(request.grid)),
      mesh_(mesh_of(request.config)),
      policy_(grid_policy_of(request.config, request.spec)),
      stages_(ranges_of_split(request.decisions.split)) {
  if (is_trivial_) return;
  const GridLoad load{.samples = request.config.microbatch_size(),
                      .has_smoothing = request.config.task.label_smoothing > 0};
  const GridPasses passes{.recomputes = request.config.model.recompute,
                          .prefetches = request.config.tensor.prefetch};
  for (const BlockRange& range : stages_)
    by_stage_.push_back(
        grid_block_events(spec_of_stage(request.spec, range), request.grid, load, passes));
}

const std::vector<GridEvent>& GridProgram::events(int stage, std::int64_t block,
                                                  bool is_backward) const {
  const GridBlockEvents& both =
      by_stage_[index(stage)][static_cast<std::size_t>(block - stages_[index(stage)].begin)];
  return is_backward ? both.backward : both.forward;
}

// Every rank has a chunk of mean size, so that each receives as many elements as were counted.
CollectiveSpec GridProgram::spec_of(const GridTraffic& t, Rank rank, int stage) const {
  const auto members = static_cast<std::uint64_t>(extent(mesh_, t.axes));
  const double rounds = t.collective == GridCollective::all_reduce ? 2 : 1;
  const auto chunk = static_cast<std::uint64_t>(
      std::llround(t.elements / std::max(1, t.calls) / rounds / static_cast<double>(members - 1)));
  CollectiveSpec spec{.traffic = traffic_of(t),
                      .kind = kind_of(t.collective),
                      .group = group_along(mesh_, rank, t.axes),
                      .dtype = request_.config.run.compute_type(),
                      .offsets = {}};
  for (std::uint64_t i = 0; i <= members; ++i) spec.offsets.push_back(i * chunk);
  const GridClassPolicy& policy = class_of(policy_, t);
  const std::size_t block = t.block + static_cast<std::size_t>(stages_[index(stage)].begin);
  if (t.map != kNoMap && policy.blocks[block] && !std::holds_alternative<AutoEncoder>(policy.codec))
    spec.up = spec.down = policy.codec;
  const bool is_encoded_sum = is_lossy(spec.up) && spec.kind != CollectiveKind::all_gather;
  const auto all = static_cast<std::int64_t>(spec.offsets.back());
  if (goes_round_a_ring(static_cast<double>(max_payload_bytes(spec.up, {spec.dtype, {all}})) /
                            static_cast<double>(members),
                        static_cast<int>(members), is_encoded_sum))
    spec.algorithm = Algorithm::ring;
  return spec;
}

int GridProgram::strand_of(int rank, const GridEvent& start, int stage, std::uint64_t pass) {
  const GridTraffic& t = start.traffic;
  const Rank first = builder_.classes().first[index(rank)];
  int least = rank;
  for (const Rank member : group_along(mesh_, first, t.axes))
    least = std::min(least, builder_.class_of(member));
  const Made key{stage, pass, start.collective, t.is_backward, least};
  auto found = made_.find(key);
  if (found == made_.end()) {
    const std::uint64_t urgency = deadline_key(0, 0, static_cast<std::uint64_t>(start.urgency));
    found = made_.emplace(key, add_collective(builder_, spec_of(t, first, stage), urgency)).first;
  }
  return found->second.at(rank);
}

}  // namespace laconic
