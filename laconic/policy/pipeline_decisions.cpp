#include "laconic/policy/pipeline_decisions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>

#include "laconic/base/error.hpp"
#include "laconic/config/stage_choice.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/policy/planned_codec.hpp"
#include "laconic/reduce/gradient_sum.hpp"
#include "laconic/schedule/check.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/store/reference_record.hpp"

// What is decided here, in this order, each from what came before it:
//
//   schedule  by its name, or from a file.
//   split     the layers of each stage: as given; or so that the largest stage costs least
//             (partition()), where a block costs its multiply-adds (`counted_costs`) or the seconds
//             that measure_blocks() took, forward and backward. Cuts are at projected
//             boundaries, if there are enough of them.
//   encoded   which gradients between stages are encoded: those that select_gradient_sends() finds
//             on the critical path of the schedule, or after the last forward of their receiver.
//   encoded_ranks
//             how many first ranks encode their sums over replicas (dp.gradient.stages = "auto"). A
//             rank that ends its backward early has slack: time in which its sums hide. The sums of
//             a rank weigh 2 (D - 1) / D times its parameters on the wire, D replicas, raw or
//             encoded (`sum_bytes`); encoding is worth it as long as some rank's sums would end
//             after all others otherwise (ranks_worth_encoding()).
//
// Times come from one place: `costs_of` turns block times, payload bytes and the measured rate into
// the Costs that estimate() and the selections read. A parameter that several stages share is
// summed apart when it is fused, and then weighs nothing here.

namespace laconic {

namespace {

constexpr std::string_view kFile = "file:";

std::vector<double> sums_of(const std::vector<BlockTimes>& blocks) {
  std::vector<double> sums;
  for (const BlockTimes& b : blocks) sums.push_back(b.forward + b.backward);
  return sums;
}

std::int64_t layers_of(const ModelSpec& spec) {
  return block_count(spec) - 2;
}

std::vector<std::int64_t> split_of(const std::vector<BlockRange>& ranges, std::int64_t layers) {
  std::vector<std::int64_t> split;
  for (const BlockRange& r : ranges)
    split.push_back(std::min(r.end, layers + 1) - std::max<std::int64_t>(r.begin, 1));
  return split;
}

// What the parameters of each pipeline rank weigh on the wire, raw and encoded.
struct SumBytes {
  std::vector<double> exact, encoded;
};

double encoded_bytes(const GradientPolicy& policy, const ParameterSpec& p) {
  const std::int64_t elements = elements_of(p);
  const auto whole = static_cast<double>(4 * elements);
  if (policy.method == ReduceMethod::codec)
    return static_cast<double>(
        max_payload_bytes(policy.up, {.dtype = Dtype::f32, .shape = {elements}}));
  if (p.sizes.size() < 2) return whole;
  const double rows = static_cast<double>(p.sizes[0]), columns = static_cast<double>(p.sizes[1]);
  const double rank = std::min({static_cast<double>(policy.rank), rows, columns});
  const double factors = 4 * rank * (rows + columns);
  return whole / factors >= policy.min_ratio ? factors : whole;
}

SumBytes sum_bytes(const RunConfig& config, const ModelSpec& spec, const PipelinePlan& plan) {
  const auto ranks = static_cast<std::size_t>(config.mesh.pp);
  const double passes =
      2 * static_cast<double>(config.mesh.dp - 1) / static_cast<double>(config.mesh.dp);
  SumBytes bytes{std::vector<double>(ranks), std::vector<double>(ranks)};
  const GradientPolicy policy = policy_of(config);
  const std::vector<int> rank_of_block = ranks_of_blocks(plan);
  std::set<std::size_t> fused;
  if (config.embedding_tied.fused)
    for (const SharedParameters& set : shared_parameters(spec, rank_of_block))
      fused.insert(set.parameters.begin(), set.parameters.end());
  for (std::size_t p = 0; p < spec.parameters.size(); ++p) {
    if (fused.contains(p) || spec.parameters[p].is_frozen) continue;
    const int rank = rank_of_block[static_cast<std::size_t>(first_user(spec, p))];
    const auto whole = static_cast<double>(4 * elements_of(spec.parameters[p]));
    bytes.exact[static_cast<std::size_t>(rank)] += passes * whole;
    bytes.encoded[static_cast<std::size_t>(rank)] +=
        passes * encoded_bytes(policy, spec.parameters[p]);
  }
  return bytes;
}

std::vector<double> divided(std::vector<double> bytes, double rate) {
  for (double& b : bytes) b = rate > 0 ? b / rate : 0;
  return bytes;
}

bool needs_times(const RunConfig& config) {
  return config.pipeline.split == kSplitMeasured || config.pp_gradient.when == When::critical ||
         (is_automatic(config.dp_gradient.stages) && config.mesh.dp > 1);
}

std::vector<double> counted_costs(const ModelSpec& spec) {
  std::vector<double> costs;
  for (const BlockSpec& block : spec.blocks) costs.push_back(block.multiply_adds);
  return costs;
}

std::vector<std::int64_t> decide_split(const RunConfig& config, const ModelSpec& spec,
                                       const std::vector<BlockTimes>& times) {
  const int stages = shape_of(config).stages;
  const std::string& split = config.pipeline.split;
  if (split != kSplitAuto && split != kSplitMeasured) {
    const std::vector<std::int64_t> given = parse_split(split);
    refuse(all_at("pipeline.split", check_split(given, layers_of(spec), stages)));
    return given;
  }
  if (block_count(spec) < stages)
    throw ConfigError({{"mesh.pp", fmt::format("{} stages, but the model has {} blocks ({}, {} "
                                               "layers, {})",
                                               stages, block_count(spec), spec.blocks.front().name,
                                               layers_of(spec), spec.blocks.back().name)}});
  const std::vector<double> costs = split == kSplitMeasured ? sums_of(times) : counted_costs(spec);
  return split_of(cheapest_stages(costs, spec, stages), layers_of(spec));
}

}  // namespace

// Blocks between boundaries where a cut is wanted stay together: if there are enough of these that
// are projected, others, whose rows are wider, are no cuts.
std::vector<BlockRange> cheapest_stages(const std::vector<double>& costs, const ModelSpec& spec,
                                        int stages) {
  if (static_cast<int>(spec.projections.size()) + 1 < stages || spec.projections.empty())
    return partition(costs, stages);
  std::vector<std::int64_t> begins = {0};
  for (const ProjectedSeam& seam : spec.projections) begins.push_back(seam.block + 1);
  begins.push_back(block_count(spec));
  std::vector<double> together;
  for (std::size_t i = 0; i + 1 < begins.size(); ++i)
    together.push_back(
        std::accumulate(costs.begin() + begins[i], costs.begin() + begins[i + 1], 0.0));
  std::vector<BlockRange> ranges = partition(together, stages);
  for (BlockRange& range : ranges)
    range = {begins[static_cast<std::size_t>(range.begin)],
             begins[static_cast<std::size_t>(range.end)]};
  return ranges;
}

PipelineShape shape_of(const RunConfig& config) {
  const int ranks = static_cast<int>(config.mesh.pp);
  return {.ranks = ranks,
          .stages = ranks * static_cast<int>(config.pipeline.chunks),
          .microbatches = static_cast<int>(config.microbatches())};
}

bool is_schedule_file(const RunConfig& config) {
  return config.pipeline.schedule.starts_with(kFile);
}

Schedule schedule_of(const RunConfig& config) {
  if (!is_schedule_file(config)) {
    // Alone there is nothing to choose.
    const std::string& name = config.pipeline.schedule;
    return build(
        config.pipeline.is_automatic() ? ScheduleKind::one_f_one_b : parse_schedule_kind(name),
        shape_of(config));
  }
  const std::string path = config.pipeline.schedule.substr(kFile.size());
  std::ifstream file(path);
  if (!file) throw ConfigError({{"pipeline.schedule", fmt::format("cannot read {}", path)}});
  std::ostringstream text;
  text << file.rdbuf();
  return parse_schedule(text.str());
}

namespace {

void compare_shapes(const PipelineShape& found, const PipelineShape& wanted, Problems& problems) {
  const auto compare = [&](const char* what, int has, int wants, const char* from) {
    if (has != wants)
      problems.push_back({"pipeline.schedule", fmt::format("the file has {} {}, the run {} ({})",
                                                           has, what, wants, from)});
  };
  compare("ranks", found.ranks, wanted.ranks, "mesh.pp");
  compare("stages", found.stages, wanted.stages, "mesh.pp * pipeline.chunks");
  compare("microbatches", found.microbatches, wanted.microbatches,
          "train.batch / mesh.dp / train.microbatch");
}

Problems check_file(const RunConfig& config) {
  Problems problems;
  try {
    const Schedule schedule = schedule_of(config);
    compare_shapes(schedule.shape, shape_of(config), problems);
    const Schedule complete = lowered(schedule);
    for (Problem& p : check(complete))
      problems.push_back({"pipeline.schedule", p.where.empty() ? p.what : p.where + ": " + p.what});
    if (!problems.empty() && schedule.shape == shape_of(config))
      problems.back().what += "\n" + picture_of_fault(complete);
  } catch (const ConfigError& error) {
    append(problems, all_at("pipeline.schedule", error.problems()));
  }
  return problems;
}

}  // namespace

Problems check_pipeline(const RunConfig& config) {
  Problems problems;
  if (is_schedule_file(config))
    problems = check_file(config);
  else if (!config.pipeline.is_automatic())
    problems = check(parse_schedule_kind(config.pipeline.schedule), shape_of(config));
  for (Problem& p : problems)
    if (p.where.empty()) p.where = "pipeline.schedule";
  if (config.mesh.pp == 1) return problems;
  for (const auto& [section, link] : {std::pair{"pp.activation", activation_link(config)},
                                      {"pp.gradient", gradient_link(config)}})
    append(problems, all_at(section, check(link)));
  return problems;
}

std::vector<TensorSpec> boundary_of(const RunConfig& config, const BlockSpec& block) {
  std::vector<TensorSpec> specs;
  for (const SeamTensor& tensor : block.out) {
    const std::int64_t width = tensor.per_sample.back();
    specs.push_back({.dtype = config.run.compute_type(),
                     .shape = {config.microbatch_size() * elements_of(tensor) / width, width}});
  }
  return specs;
}

Costs costs_of(const RunConfig& config, const ModelSpec& spec, const PipelineDecisions& decisions,
               const std::vector<BlockTimes>& blocks, const LinkFacts& link) {
  Costs costs{.stages = {},
              .edges = {},
              .latency = link.latency,
              .wiring = Wiring::hosts,
              .encoded = decisions.encoded};
  for (const BlockRange& range : ranges_of_split(decisions.split)) {
    StageCost cost{0, 0, 0, 0, 0};
    for (std::int64_t b = range.begin; b < range.end; ++b) {
      cost.forward += blocks[static_cast<std::size_t>(b)].forward;
      cost.backward += blocks[static_cast<std::size_t>(b)].backward;
    }
    cost.backward_input = cost.backward_weight = cost.backward / 2;
    costs.stages.push_back(cost);
  }
  if (link.bytes_per_second <= 0) return costs;
  const PipelinePlan plan = plan_of(config, decisions);
  const SumBytes sums = sum_bytes(config, spec, plan);
  std::set<int> counted;  // the first stage of a rank has the sums of all its stages
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const int rank = rank_of_stage(plan.schedule, static_cast<int>(s));
    const bool is_encoded = rank < decisions.encoded_ranks;
    if (counted.insert(rank).second)
      costs.stages[s].reduction =
          (is_encoded ? sums.encoded : sums.exact)[static_cast<std::size_t>(rank)] /
          link.bytes_per_second;
  }
  for (std::size_t s = 0; s + 1 < plan.stages.size(); ++s) {
    const int edge = static_cast<int>(s);
    const CodecSpec activation = planned_codec(link_at(plan, Traffic::pp_activation, edge).codec),
                    gradient = planned_codec(link_at(plan, Traffic::pp_gradient, edge).codec);
    const std::vector<TensorSpec> tensors =
        boundary_of(config, spec.blocks[static_cast<std::size_t>(plan.stages[s].end - 1)]);
    const auto seconds = [&](const CodecSpec& codec) {
      double bytes = 0;
      for (const TensorSpec& tensor : tensors)
        bytes += static_cast<double>(max_payload_bytes(codec, tensor));
      return bytes / link.bytes_per_second;
    };
    costs.edges.push_back(
        {.activation = seconds(activation),
         .gradient = seconds(config.pp_gradient.when == When::always ? gradient : Raw{}),
         .encoded_gradient = seconds(gradient)});
  }
  return costs;
}

PipelineDecisions decide_pipeline(const RunConfig& config, const ModelSpec& spec,
                                  const LinkFacts& link, const TimeBlocks& time_blocks) {
  PipelineDecisions d{.schedule = schedule_of(config),
                      .split = {layers_of(spec)},
                      .encoded = {},
                      .encoded_ranks = static_cast<int>(config.mesh.pp)};
  if (config.stages() == 1) return d;
  const std::vector<BlockTimes> times =
      needs_times(config) ? time_blocks() : std::vector<BlockTimes>(spec.blocks.size());
  d.split = decide_split(config, spec, times);
  const Schedule complete = lowered(d.schedule);
  const Costs costs = costs_of(config, spec, d, times, link);
  if (config.pp_gradient.when != When::always)
    d.encoded = select_gradient_sends(complete, config.pp_gradient.when, costs);
  // Without a rate there is nothing to choose by: all ranks encode.
  if (is_automatic(config.dp_gradient.stages) && config.mesh.dp > 1 && link.bytes_per_second > 0) {
    const SumBytes bytes = sum_bytes(config, spec, plan_of(config, d));
    d.encoded_ranks = ranks_worth_encoding(slack_of_ranks(complete, costs),
                                           divided(bytes.exact, link.bytes_per_second),
                                           divided(bytes.encoded, link.bytes_per_second));
  }
  return d;
}

PipelinePlan plan_of(const RunConfig& config, const PipelineDecisions& decisions) {
  return {.schedule = lowered(decisions.schedule),
          .stages = ranges_of_split(decisions.split),
          .encoded = decisions.encoded,
          .activation = activation_link(config),
          .gradient = gradient_link(config),
          .encodes_activation = encoded_boundaries(Traffic::pp_activation, config),
          .encodes_gradient = encoded_boundaries(Traffic::pp_gradient, config)};
}

std::uint64_t reference_bytes(const LinkSpec& link, const std::vector<SeamTensor>& seam,
                              std::uint64_t samples) {
  const auto* delta = std::get_if<Delta>(&link.memory);
  if (delta == nullptr) return 0;
  std::uint64_t of_a_sample = 0;
  for (const SeamTensor& tensor : seam) {
    const std::uint64_t bytes =
        record_bytes(delta->reference, static_cast<std::uint64_t>(elements_of(tensor)));
    of_a_sample += (bytes + 4095) / 4096 * 4096;
  }
  return samples * of_a_sample;
}

}  // namespace laconic
