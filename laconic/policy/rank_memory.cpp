#include "laconic/policy/rank_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "laconic/architecture/grid_memory.hpp"
#include "laconic/architecture/grid_place.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/policy/class_policy.hpp"

namespace laconic {

namespace {

// One rank's part of the model; counts are elements.
struct HeldPart {
  const MemoryRequest& request;
  const PipelinePlan& plan;
  int pp = 0;  // its place in the pipeline
  HeldBlocks held;
  const std::vector<double>& on_a_rank;  // elements of each parameter
  const std::vector<double>& gathered;   // elements of each block; empty: no grid
  const KeptGathered& more;              // what forward keeps of a microbatch besides
  const std::set<std::size_t>& tables;   // whose rows travel

  const RunConfig& config() const { return request.config; }
  const std::vector<BlockSpec>& blocks() const { return request.spec.blocks; }
  double elements(std::size_t parameter) const { return on_a_rank[parameter]; }
  double elements_used_by(const BlockSpec& block) const {
    double sum = 0;
    for (const std::size_t p : block.uses) sum += elements(p);
    return sum;
  }
  double elements_trained_by(const BlockSpec& block, bool with_tables) const {
    double sum = 0;
    for (const std::size_t p : block.uses)
      if (!request.spec.parameters[p].is_frozen && (with_tables || !tables.contains(p)))
        sum += elements(p);
    return sum;
  }
  template <class Visit>
  void for_each_held(const Visit& visit) const {
    for (std::size_t b = 0; b < blocks().size(); ++b)
      if (held.empty() || held[b]) visit(blocks()[b]);
  }
  std::set<std::size_t> parameters() const {
    std::set<std::size_t> used;
    for_each_held(
        [&](const BlockSpec& block) { used.insert(block.uses.begin(), block.uses.end()); });
    return used;
  }
};

// What forward of a stage keeps of a microbatch.
double kept_by_stage(const HeldPart& part, int stage) {
  const BlockRange& range = part.plan.stages[static_cast<std::size_t>(stage)];
  const auto samples = static_cast<double>(part.config().microbatch_size());
  double kept = 0;
  for (auto b = static_cast<std::size_t>(range.begin); b < static_cast<std::size_t>(range.end); ++b)
    kept += samples *
                kept_on_a_rank(part.request.grid, part.blocks()[b], part.config().model.recompute) +
            part.more.kept[b];
  return kept;
}

// Of the block in backward that needs most besides.
double most_at_work(const HeldPart& part) {
  const auto samples = static_cast<double>(part.config().microbatch_size());
  double most = 0;
  for (std::size_t b = 0; b < part.blocks().size(); ++b)
    if (part.held.empty() || part.held[b])
      most = std::max(most, samples * at_work_on_a_rank(part.request.grid, part.blocks()[b],
                                                        part.config().model.recompute) +
                                part.more.at_work[b]);
  return most;
}

// The most that is kept at once, by walking the rank's list of the schedule; and the block in
// backward.
double live_elements(const HeldPart& part) {
  double live = 0, most = 0;
  std::map<int, double> kept;  // by stage
  for (const Action& a : part.plan.schedule.by_rank[static_cast<std::size_t>(part.pp)]) {
    const auto [of_stage, is_new] = kept.try_emplace(a.stage);
    if (is_new) of_stage->second = kept_by_stage(part, a.stage);
    if (a.op == Op::forward) most = std::max(most, live += of_stage->second);
    if (a.op == Op::backward || a.op == Op::backward_weight) live -= of_stage->second;
  }
  return most + most_at_work(part);
}

double gathered_elements(const HeldPart& part) {
  double most = 0;
  for (std::size_t b = 0; b < part.gathered.size(); ++b)
    if (part.held.empty() || part.held[b]) most = std::max(most, part.gathered[b]);
  return most;
}

// Each block has a sum of its own for a parameter that several use; a second microbatch's gradient
// of one block is there before it is added.
double gradient_elements(const HeldPart& part, bool with_tables) {
  double sums = 0, largest = 0;
  part.for_each_held([&](const BlockSpec& block) {
    const double trained = part.elements_trained_by(block, with_tables);
    sums += trained;
    largest = std::max(largest, trained);
  });
  return sums + (part.config().microbatches() > 1 ? largest : 0);
}

// Elements for every element of a parameter: buffers of sums, residuals, what local updates
// remember.
struct BufferCopies {
  double flat = 0, residuals = 0, local = 0;
};

BufferCopies buffer_copies(const HeldPart& part) {
  const RunConfig& c = part.config();
  if (c.mesh.dp == 1 && c.mesh.pp == 1) return {};
  BufferCopies copies{.flat = 1};
  const SumPlace place{.pp = part.pp, .encoded = part.request.decisions.encoded_ranks};
  if (is_encoded(Traffic::dp_gradient, c, place) && c.dp_gradient.feedback != FeedbackOf::none)
    copies.residuals =
        c.dp_gradient.feedback == FeedbackOf::both ? 1 + 1 / static_cast<double>(c.mesh.dp) : 1;
  if (c.dp_gradient.late > 0) copies.flat = 2;
  if (c.local.steps > 0 && c.local.method == LocalMethod::linear)
    copies.flat = warm_up_of(c) ? 3 : 2;  // changes, gradients, and gradients of the warm-up
  if (c.local.steps > 0) copies.local = c.local.has_parts() ? 3 : 2;
  return copies;
}

// Whether the sums of this part could be made on a GPU (update/gradient_exchange.hpp).
bool gpu_could_add(const HeldPart& part) {
  const RunConfig& c = part.config();
  if (c.local.steps > 0 || c.dp_gradient.method == GradientMethod::compressed_adam) return false;
  const SumPlace place{.pp = part.pp, .encoded = part.request.decisions.encoded_ranks};
  return gpus_could_sum(policy_of(c, place), c.run.master_type(), static_cast<int>(c.mesh.dp));
}

// Of one link for each tensor of a seam, `needed` for all of them.
void add_references(const Delta& delta, double needed, double tensors, MemoryEstimate& memory) {
  const auto budget = static_cast<double>(delta.budget_bytes);
  const double kept = budget > 0 ? std::min(budget, needed) : needed;
  const double on_gpu = std::min(static_cast<double>(delta.device_bytes) * tensors, kept);
  memory.gpu_references += on_gpu;
  if (!delta.folder.empty()) return;
  memory.references += kept;
  memory.spared_references += on_gpu;
}

// Edges to other ranks: what this rank's ends remember, and messages that may be asked for again.
void add_edges(const HeldPart& part, double item, MemoryEstimate& memory) {
  const RunConfig& c = part.config();
  const auto replicas = static_cast<std::uint64_t>(c.mesh.dp);
  const std::uint64_t samples = (part.request.samples + replicas - 1) / replicas;
  for (std::size_t e = 0; e + 1 < part.plan.stages.size(); ++e) {
    const int lower = rank_of_stage(part.plan.schedule, static_cast<int>(e)),
              upper = rank_of_stage(part.plan.schedule, static_cast<int>(e) + 1);
    if (lower == upper || (lower != part.pp && upper != part.pp)) continue;
    const std::vector<SeamTensor>& seam =
        part.blocks()[static_cast<std::size_t>(part.plan.stages[e].end - 1)].out;
    memory.buffers +=
        static_cast<double>(c.local_batch()) * seam_on_a_rank(part.request.grid, seam) * item;
    for (const Traffic traffic : {Traffic::pp_activation, Traffic::pp_gradient}) {
      const LinkSpec link = link_at(part.plan, traffic, static_cast<int>(e));
      if (const auto* delta = std::get_if<Delta>(&link.memory)) {
        const double needed = share_of_seam(part.request.grid) *
                              static_cast<double>(reference_bytes(link, seam, samples));
        add_references(*delta, needed, static_cast<double>(seam.size()), memory);
      }
    }
  }
}

// What of a table blocks on a GPU have in a step: whole rows, as they come and as leaves, with
// gradients.
double bytes_of_rows(const HeldPart& part, std::size_t table, double item, double master) {
  const RunConfig& c = part.config();
  const ParameterSpec& spec = part.request.spec.parameters[table];
  double read = 0;
  for (const std::string& field : spec.looked_up_by)
    read += static_cast<double>(field == kDrawnField ? c.task.sampled
                                                     : c.local_batch() * c.model.context);
  return std::min(read, static_cast<double>(spec.sizes[0])) * static_cast<double>(spec.sizes[1]) *
         (item + 2 * master);
}

TableMemory table_memory(const HeldPart& part, double item, double master) {
  TableMemory memory;
  for (const std::size_t p : part.parameters()) {
    if (!part.tables.contains(p)) continue;
    memory.parameters += part.elements(p) * master;
    memory.copies += item == master ? 0 : part.elements(p) * item;
    memory.optimiser +=
        part.elements(p) * master *
        moment_count(part.config().optimiser.kind, is_hidden_matrix(part.request.spec, p));
    memory.rows += bytes_of_rows(part, p, item, master);
  }
  memory.gradients = (gradient_elements(part, true) - gradient_elements(part, false)) * master;
  return memory;
}

MemoryEstimate memory_of(const HeldPart& part) {
  const RunSection& run = part.config().run;
  const auto item = static_cast<double>(bytes_of(run.compute_type()));
  const auto master = static_cast<double>(bytes_of(run.master_type()));
  MemoryEstimate memory;
  const BufferCopies copies = buffer_copies(part);
  for (const std::size_t p : part.parameters()) {
    memory.parameters += part.elements(p) * (item == master ? master : master + item);
    memory.optimiser +=
        part.elements(p) * master *
        moment_count(part.config().optimiser.kind, is_hidden_matrix(part.request.spec, p));
    if (part.request.spec.parameters[p].is_frozen) continue;
    const double bytes = part.elements(p) * master;
    memory.buffers += (copies.flat + copies.residuals + copies.local) * bytes;
    if (part.tables.contains(p)) continue;  // what travels of them the host adds
    memory.residuals += copies.residuals * bytes;
    memory.sums += (copies.flat + copies.residuals) * bytes;
  }
  if (!gpu_could_add(part)) memory.sums = memory.residuals = 0;
  memory.gradients = gradient_elements(part, true) * master;
  memory.tables = table_memory(part, item, master);
  memory.activations = (live_elements(part) + gathered_elements(part)) * item;
  add_edges(part, item, memory);
  return memory;
}

}  // namespace

MemoryEstimate& MemoryEstimate::operator+=(const MemoryEstimate& more) {
  parameters += more.parameters;
  gradients += more.gradients;
  optimiser += more.optimiser;
  activations += more.activations;
  references += more.references;
  gpu_references += more.gpu_references;
  spared_references += more.spared_references;
  buffers += more.buffers;
  sums += more.sums;
  residuals += more.residuals;
  tables.parameters += more.tables.parameters;
  tables.copies += more.tables.copies;
  tables.optimiser += more.tables.optimiser;
  tables.gradients += more.tables.gradients;
  tables.rows += more.tables.rows;
  program += more.program;
  return *this;
}

std::string to_text(const MemoryEstimate& m) {
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : {std::pair{"parameters", m.parameters},
                                    {"gradients", m.gradients},
                                    {"optimiser", m.optimiser},
                                    {"activations", m.activations},
                                    {"references", m.references},
                                    {"buffers", m.buffers},
                                    {"program", m.program}})
    if (bytes > 0) parts.push_back(fmt::format("{} {}", name, human_bytes(bytes)));
  return join(parts, ", ");
}

double model_flops(const ModelSpec& spec, std::int64_t samples) {
  double multiply_adds = 0;
  for (const BlockSpec& block : spec.blocks) multiply_adds += block.multiply_adds;
  return 6 * multiply_adds * static_cast<double>(samples);
}

namespace {

std::vector<double> elements_on_a_rank(const MemoryRequest& request) {
  const GridPlace place{request.grid, {}, table_cuts(request.config, request.spec)};
  std::vector<double> counts;
  for (const ParameterSpec& parameter : request.spec.parameters) {
    double product = 1;
    for (const std::int64_t size : sizes_at(place, parameter)) product *= static_cast<double>(size);
    counts.push_back(product);
  }
  return counts;
}

}  // namespace

std::vector<MemoryEstimate> rank_memory(const MemoryRequest& request) {
  const PipelinePlan plan = plan_of(request.config, request.decisions);
  const int ranks = static_cast<int>(request.config.mesh.pp);
  const std::vector<double> elements = elements_on_a_rank(request);
  const std::vector<std::size_t> tables = row_tables(request.config, request.spec);
  const std::set<std::size_t> is_table(tables.begin(), tables.end());
  std::vector<double> gathered;
  if (!is_trivial(request.grid))
    gathered = gathered_on_a_rank(request.spec, request.grid, request.config.microbatch_size(),
                                  request.config.tensor.prefetch);
  const KeptGathered more = kept_gathered_on_a_rank(
      request.spec, request.grid, request.config.microbatch_size(), request.config.model.recompute);
  std::vector<MemoryEstimate> by_place;
  for (int pp = 0; pp < ranks; ++pp)
    by_place.push_back(memory_of({.request = request,
                                  .plan = plan,
                                  .pp = pp,
                                  .held = ranks > 1 ? held_blocks(plan, pp) : HeldBlocks(),
                                  .on_a_rank = elements,
                                  .gathered = gathered,
                                  .more = more,
                                  .tables = is_table}));
  return by_place;
}

}  // namespace laconic
