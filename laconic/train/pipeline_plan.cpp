#include "laconic/train/pipeline_plan.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/target.hpp"
#include "laconic/config/stage_choice.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/reduce/gradient_sum.hpp"
#include "laconic/schedule/check.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/schedule/partition.hpp"
#include "laconic/store/reference_record.hpp"
#include "laconic/train/batch.hpp"

// What is decided here, in this order, each from what came before it:
//
//   schedule  by its name, or from a file.
//   split     the layers of each stage: as given; or so that the largest stage costs least
//             (partition()), where a block costs its multiply-adds (`counted_costs`) or the seconds
//             that measure_blocks() took, forward and backward.
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
constexpr int kTimings = 3;  // of every block; the best counts

PipelineShape shape_of(const RunConfig& config) {
  const int ranks = static_cast<int>(config.mesh.pp);
  return {.ranks = ranks,
          .stages = ranks * static_cast<int>(config.pipeline.chunks),
          .microbatches = static_cast<int>(config.microbatches())};
}

bool is_file(const RunConfig& config) {
  return config.pipeline.schedule.starts_with(kFile);
}

// Throws ConfigError.
Schedule schedule_of(const RunConfig& config) {
  if (!is_file(config)) {
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

// Everything that crosses a boundary behind this block for one microbatch, as links see it.
std::vector<TensorSpec> boundary_of(const RunConfig& config, const BlockSpec& block) {
  std::vector<TensorSpec> specs;
  for (const SeamTensor& tensor : block.out) {
    const std::int64_t width = tensor.per_sample.back();
    specs.push_back({.dtype = config.run.compute_type(),
                     .shape = {config.microbatch_size() * elements_of(tensor) / width, width}});
  }
  return specs;
}

// What a message is expected to weigh at most. The bound of transform is that of messages without a
// basis, which are few; with one it has the error of its bits in no more than those.
CodecSpec planned(const CodecSpec& codec) {
  const auto* transform = std::get_if<Transform>(&codec);
  if (transform == nullptr) return codec;
  return Quantise{.bits = transform->bits, .block = 64, .scale = transform->scale};
}

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
    if (fused.contains(p)) continue;
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

// Until a GPU has come so far: it is given work, and the host goes on.
void wait_for(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) (void)tensor.flatten()[0].item<double>();
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
  return split_of(partition(costs, stages), layers_of(spec));
}

}  // namespace

std::string to_json(const PipelineDecisions& d) {
  nlohmann::ordered_json json = {{"schedule", to_text(d.schedule)},
                                 {"split", d.split},
                                 {"encoded", nlohmann::ordered_json::array()},
                                 {"encoded_ranks", d.encoded_ranks}};
  if (!d.kind.empty())
    json.update({{"kind", d.kind}, {"microbatch", d.microbatch}, {"why", d.why}});
  for (const std::vector<bool>& edge : d.encoded) {
    std::string flags;
    for (const bool is_encoded : edge) flags += is_encoded ? '1' : '0';
    json["encoded"].push_back(flags);
  }
  return json.dump();
}

PipelineDecisions parse_decisions(std::string_view text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    PipelineDecisions d{.schedule = parse_schedule(json.at("schedule").get<std::string>()),
                        .split = json.at("split").get<std::vector<std::int64_t>>(),
                        .encoded = {},
                        .encoded_ranks = json.at("encoded_ranks").get<int>(),
                        .kind = json.value("kind", ""),
                        .microbatch = json.value("microbatch", std::int64_t{0}),
                        .why = json.value("why", "")};
    for (const auto& flags : json.at("encoded")) {
      d.encoded.emplace_back();
      for (const char flag : flags.get<std::string>()) d.encoded.back().push_back(flag == '1');
    }
    return d;
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError(
        fmt::format("what was decided about the pipeline cannot be read: {}", error.what()));
  }
}

Problems check_pipeline(const RunConfig& config) {
  Problems problems;
  if (is_file(config))
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

namespace {

// The first block of each kind, in the order of the chain.
std::vector<std::int64_t> blocks_of_each_kind(const ModelSpec& spec) {
  std::vector<std::int64_t> first;
  std::set<std::string> kinds;
  for (std::size_t b = 0; b < spec.blocks.size(); ++b)
    if (kinds.insert(spec.blocks[b].kind).second) first.push_back(static_cast<std::int64_t>(b));
  return first;
}

// Token ids; whole lengths; and 0, which is a class, a type and a position in every model.
at::Tensor random_field(const FieldSpec& field, const std::vector<std::int64_t>& sizes,
                        const Family& family, const RunConfig& config) {
  if (field.name.ends_with("length")) return at::full(sizes, config.model.context, at::kLong);
  // Only hidden tokens reach the head.
  if (field.name == "targets" && config.task.kind == TaskKind::masked) {
    const at::Tensor ids = at::randint(0, vocabulary_of(family), sizes, at::kLong);
    return ids.masked_fill(at::rand(sizes).ge(config.task.mask_share), kNoTarget);
  }
  if (field.per_sample[0] == 1 || field.name == "types")
    return at::zeros(sizes, field.is_real ? at::kDouble : at::kLong);
  return at::randint(0, vocabulary_of(family), sizes, at::kLong);
}

Batch random_batch(const RunConfig& config, const Family& family, at::Device device) {
  Batch batch;
  for (const FieldSpec& field : fields_of(task_of(config), config.model.context)) {
    std::vector<std::int64_t> sizes = {config.microbatch_size()};
    sizes.insert(sizes.end(), field.per_sample.begin(), field.per_sample.end());
    batch.add(field.name, random_field(field, sizes, family, config).to(device));
  }
  return batch;
}

}  // namespace

// Only one block of each kind is made. What one kind puts out another takes: the chain holds also
// without the blocks between.
std::vector<BlockTimes> measure_blocks(const RunConfig& config, const Family& family,
                                       const at::TensorOptions& options) {
  const ModelSpec spec = model_spec(family, config.model.context);
  const std::vector<std::int64_t> chosen = blocks_of_each_kind(spec);
  HeldBlocks held(spec.blocks.size(), false);
  for (const std::int64_t b : chosen) held[static_cast<std::size_t>(b)] = true;
  Weights weights = make_weights(family, 1, options, held, config.model.context);
  const Batch batch = random_batch(config, family, options.device());
  constexpr double kLongest = std::numeric_limits<double>::max();
  std::map<std::string, BlockTimes> best;
  for (const BlockSpec& block : spec.blocks) best[block.kind] = {kLongest, kLongest};
  for (int round = 0; round < kTimings; ++round) {
    Seam seam;
    std::vector<std::unique_ptr<Stage>> stages;
    for (const std::int64_t b : chosen) {
      double& shortest = best[spec.blocks[static_cast<std::size_t>(b)].kind].forward;
      stages.push_back(std::make_unique<Stage>(weights, BlockRange{b, b + 1}, StageOptions{}));
      const Stopwatch watch;
      seam = stages.back()->forward(0, batch, {}, seam);
      wait_for(seam.front());
      shortest = std::min(shortest, watch.seconds());
    }
    Seam gradient = {at::scalar_tensor(1.0, seam.front().options())};
    for (std::size_t i = chosen.size(); i-- > 0;) {
      double& shortest = best[spec.blocks[static_cast<std::size_t>(chosen[i])].kind].backward;
      const Stopwatch watch;
      gradient = stages[i]->backward(0, gradient, {});
      wait_for(gradient.empty() ? weights.leaves.front().front().sum : gradient.front());
      shortest = std::min(shortest, watch.seconds());
    }
  }
  std::vector<BlockTimes> times;
  for (const BlockSpec& block : spec.blocks) times.push_back(best[block.kind]);
  return times;
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
  const CodecSpec activation = planned(activation_link(config).codec),
                  gradient = planned(gradient_link(config).codec);
  for (std::size_t s = 0; s + 1 < plan.stages.size(); ++s) {
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

PipelineDecisions decide_pipeline(const RunConfig& config, const Family& family,
                                  const LinkFacts& link, const at::TensorOptions& options) {
  const ModelSpec spec = model_spec(family, config.model.context);
  const bool is_measured = config.stages() > 1 && needs_times(config);
  return decide_pipeline(config, spec,
                         is_measured ? measure_blocks(config, family, options)
                                     : std::vector<BlockTimes>(spec.blocks.size()),
                         link);
}

PipelineDecisions decide_pipeline(const RunConfig& config, const ModelSpec& spec,
                                  const std::vector<BlockTimes>& times, const LinkFacts& link) {
  PipelineDecisions d{.schedule = schedule_of(config),
                      .split = {layers_of(spec)},
                      .encoded = {},
                      .encoded_ranks = static_cast<int>(config.mesh.pp)};
  if (config.stages() == 1) return d;
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

RunConfig as_decided(RunConfig config, const PipelineDecisions& decisions) {
  config.pipeline.decided_microbatch = decisions.microbatch;
  return config;
}

bool still_holds(const PipelineDecisions& decisions, const RunConfig& config) {
  return !is_file(config) || schedule_of(config) == decisions.schedule;
}

PipelinePlan plan_of(const RunConfig& config, const PipelineDecisions& decisions) {
  return {.schedule = lowered(decisions.schedule),
          .stages = ranges_of_split(decisions.split),
          .encoded = decisions.encoded,
          .activation = activation_link(config),
          .gradient = gradient_link(config)};
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
