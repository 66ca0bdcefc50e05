#include "laconic/simulate/grid_program.hpp"

#include <algorithm>
#include <cmath>

#include "laconic/base/index.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/layout/layout.hpp"

namespace laconic {

namespace {

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
      mesh_(request.mesh),
      policy_(grid_policy_of(request.config, request.spec)) {
  if (is_trivial_) return;
  const GridLoad load{.samples = request.config.microbatch_size(),
                      .has_smoothing = request.config.task.label_smoothing > 0};
  const GridPasses passes{.recomputes = request.config.model.recompute,
                          .prefetches = request.config.tensor.prefetch};
  for (const BlockRange& range : ranges_of_split(request.decisions.split))
    by_stage_.push_back(grid_block_events(request.spec, request.grid, load, passes,
                                          static_cast<std::size_t>(range.begin),
                                          static_cast<std::size_t>(range.end)));
}

const std::vector<GridEvent>& GridProgram::events(int stage, std::int64_t block,
                                                  bool is_backward) const {
  const GridBlockEvents& both = by_stage_[index(stage)][static_cast<std::size_t>(block)];
  return is_backward ? both.backward : both.forward;
}

// Every rank has a chunk of mean size, so that each receives as many elements as were counted.
CollectiveSpec GridProgram::spec_of(const GridTraffic& t, Rank rank) {
  const auto members = static_cast<std::uint64_t>(extent(mesh_, t.axes));
  const double rounds = t.collective == GridCollective::all_reduce ? 2 : 1;
  const bool gathers = is_gathered(policy_, t);  // then there is one chunk, of all of them
  const std::uint64_t chunks = gathers ? 1 : members;
  const auto chunk = static_cast<std::uint64_t>(
      std::llround(t.elements / std::max(1, t.calls) / rounds / static_cast<double>(members - 1) *
                   static_cast<double>(members) / static_cast<double>(chunks)));
  CollectiveSpec spec{.traffic = traffic_of(t),
                      .kind = kind_of(t.collective),
                      .group = group_of(rank, t.axes),
                      .dtype = message_dtype(request_.config, t),
                      .offsets = {}};
  for (std::uint64_t i = 0; i <= chunks; ++i) spec.offsets.push_back(i * chunk);
  if (t.map != kNoMap) spec.up = spec.down = message_codec(class_of(policy_, t), t.block);
  const auto columns = static_cast<std::uint64_t>(t.columns);
  if (is_lossy(spec.up) && columns > 0 && chunk % columns == 0) spec.columns = columns;
  if (gathers) {
    spec.algorithm = Algorithm::gathered;
    return spec;
  }
  const bool is_encoded_sum = is_lossy(spec.up) && spec.kind != CollectiveKind::all_gather;
  const auto all = static_cast<std::int64_t>(spec.offsets.back());
  if (goes_round_a_ring(static_cast<double>(max_payload_bytes(spec.up, {spec.dtype, {all}})) /
                            static_cast<double>(members),
                        static_cast<int>(members), is_encoded_sum))
    spec.algorithm = Algorithm::ring;
  return spec;
}

// Found once: it looks at all ranks.
const Group& GridProgram::group_of(Rank rank, const Axes& axes) {
  const auto [found, is_new] = groups_.try_emplace({rank, axes});
  if (is_new) found->second = group_along(mesh_, rank, axes);
  return found->second;
}

int GridProgram::strand_of(int rank, const GridEvent& start, int stage, std::uint64_t pass) {
  const GridTraffic& t = start.traffic;
  const Rank first = builder_.classes().first[index(rank)];
  int least = rank;
  for (const Rank member : group_of(first, t.axes))
    least = std::min(least, builder_.class_of(member));
  const Made key{stage, pass, start.collective, t.is_backward, least};
  auto found = made_.find(key);
  if (found == made_.end()) found = made_.emplace(key, add_calls(start, first)).first;
  return found->second.at(rank);
}

// Several calls of one kind come one after the other.
ExchangeStrands GridProgram::add_calls(const GridEvent& start, Rank rank) {
  const std::uint64_t key = deadline_key(0, 0, static_cast<std::uint64_t>(start.urgency));
  const CollectiveSpec spec = spec_of(start.traffic, rank);
  if (start.traffic.calls <= 1) return add_collective(builder_, spec, key);
  ExchangeStrands chains;
  for (int call = 0; call < start.traffic.calls; ++call)
    for (const auto& [member, strand] : add_collective(builder_, spec, key)) {
      const auto [chain, is_new] = chains.try_emplace(member);
      if (is_new) chain->second = builder_.add_background(member, key, spec.traffic);
      builder_.start(chain->second, strand);
      builder_.join(chain->second, strand);
    }
  return chains;
}

}  // namespace laconic
