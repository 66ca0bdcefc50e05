#include "laconic/architecture/grid_memory.hpp"

#include <algorithm>
#include <numeric>

#include "laconic/architecture/grid_cost.hpp"

namespace laconic {

namespace {

// With 1d the stream is whole everywhere: about the input, both norms and the sum between them.
double share_of_kept(const GridPlan& plan, const BlockSpec& block) {
  const auto kept = static_cast<double>(block.kept);
  const double ranks = tp_size(plan.mesh);
  if (plan.method != TensorMethod::one_d || block.out.empty()) return kept / ranks;
  const double stream = std::min(kept, 4 * static_cast<double>(elements_of(block.out.back())));
  return stream + (kept - stream) / ranks;
}

}  // namespace

double elements_on_a_rank(const GridPlan& plan, const ParameterSpec& p) {
  const std::vector<std::int64_t> sizes = cut_sizes(p.sizes, p.parts, p.is_out_in);
  const Layout layout = layout_of(plan, p.role, p.is_out_in, sizes.size());
  double product = 1;
  for (const std::int64_t size : sizes_of(shard_of(layout, plan.mesh, {}, sizes)))
    product *= static_cast<double>(size);
  return product;
}

double share_of_seam(const GridPlan& plan) {
  const ActivationLayout stream = stream_of(plan);
  return 1.0 / extent(plan.mesh, stream.rows) / extent(plan.mesh, stream.features);
}

double seam_on_a_rank(const GridPlan& plan, const std::vector<SeamTensor>& seam) {
  double all = 0;
  for (const SeamTensor& tensor : seam) all += static_cast<double>(elements_of(tensor));
  return all * share_of_seam(plan);
}

double kept_on_a_rank(const GridPlan& plan, const BlockSpec& block, bool recomputes) {
  const bool is_seam_alone = recomputes && !block.out.empty();
  return is_seam_alone ? seam_on_a_rank(plan, block.out) : share_of_kept(plan, block);
}

// Gradients are about half of what a block keeps.
double at_work_on_a_rank(const GridPlan& plan, const BlockSpec& block, bool recomputes) {
  if (block.out.empty()) return 0;
  return (recomputes ? 1.5 : 0.5) * share_of_kept(plan, block);
}

std::vector<double> gathered_on_a_rank(const ModelSpec& spec, const GridPlan& plan,
                                       std::int64_t samples, bool prefetches) {
  std::vector<std::vector<GridMapWork>> maps;
  std::vector<std::vector<double>> gathered;
  for (std::size_t b = 0; b < spec.blocks.size(); ++b) {
    maps.push_back(grid_map_work(spec, plan, b, samples));
    gathered.emplace_back(maps.back().size(), 0);
  }
  for (const GridTraffic& t : grid_traffic(spec, plan, {.samples = samples})) {
    if (t.map == kNoMap || !t.is_backward) continue;
    const GridMapWork& map = maps[t.block][static_cast<std::size_t>(t.map)];
    double& sum = gathered[t.block][static_cast<std::size_t>(t.map)];
    const bool is_gather = t.collective == GridCollective::all_gather;
    if (t.use == CollectiveUse::weight)
      sum += (prefetches ? 2 : 1) * map.weight;  // and again for its gradient
    if (t.use == CollectiveUse::input && is_gather) sum += map.input;
    if (t.use == CollectiveUse::output) sum += map.output;
  }
  std::vector<double> most;
  for (const std::vector<double>& of_block : gathered)
    most.push_back(of_block.empty() ? 0 : *std::ranges::max_element(of_block));
  return most;
}

// They are what backward would gather again. A whole input takes the place of this rank's part of
// it, but where codes are made of that; weights do not.
KeptGathered kept_gathered_on_a_rank(const ModelSpec& spec, const GridPlan& plan,
                                     std::int64_t samples, bool recomputes) {
  KeptGathered all{.kept = std::vector<double>(spec.blocks.size(), 0),
                   .at_work = std::vector<double>(spec.blocks.size(), 0)};
  if (plan.keep == GridKeep::nothing) return all;
  GridPlan again = plan;
  again.keep = GridKeep::nothing;
  for (const GridTraffic& t : grid_traffic(spec, again, {.samples = samples})) {
    const bool is_again = t.is_backward && t.collective == GridCollective::all_gather &&
                          (t.use == CollectiveUse::input || t.use == CollectiveUse::weight);
    if (t.map == kNoMap || !is_again) continue;
    const bool is_recomputed = recomputes && !spec.blocks[t.block].out.empty();
    const double part = t.elements / (extent(plan.mesh, t.axes) - 1);
    const bool has_codes = plan.codes.size > 0 && plan.codes.blocks[t.block];
    (is_recomputed ? all.at_work : all.kept)[t.block] +=
        t.elements + (t.use == CollectiveUse::input && !has_codes ? 0 : part);
  }
  return all;
}

GridHolding grid_holding(const ModelSpec& spec, const GridPlan& plan, const GridHeld& held) {
  GridHolding all;
  for (const ParameterSpec& p : spec.parameters) all.parameters += elements_on_a_rank(plan, p);
  double kept = 0, at_work = 0, largest = 0;
  for (std::size_t b = 0; b < spec.blocks.size(); ++b) {
    const BlockSpec& block = spec.blocks[b];
    double used = 0;
    for (const std::size_t p : block.uses) used += elements_on_a_rank(plan, spec.parameters[p]);
    all.gradients += used;
    largest = std::max(largest, used);
    kept += kept_on_a_rank(plan, block, held.recomputes);
    at_work = std::max(at_work, at_work_on_a_rank(plan, block, held.recomputes));
  }
  all.gathered = std::ranges::max(gathered_on_a_rank(spec, plan, held.samples, held.prefetches));
  // A second microbatch's gradient of one block is there before it is added.
  if (held.microbatches > 1) all.gradients += largest;
  const KeptGathered more = kept_gathered_on_a_rank(spec, plan, held.samples, held.recomputes);
  all.activations = (kept + at_work) * static_cast<double>(held.samples) +
                    std::accumulate(more.kept.begin(), more.kept.end(), 0.0) +
                    std::ranges::max(more.at_work);
  return all;
}

}  // namespace laconic
