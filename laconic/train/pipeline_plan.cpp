#include "laconic/train/pipeline_plan.hpp"

#include <ATen/ops/randint.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/link/reference_record.hpp"
#include "laconic/reduce/gradient_sum.hpp"
#include "laconic/schedule/check.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/schedule/partition.hpp"
#include "laconic/train/update_rule.hpp"

namespace laconic {

namespace {

constexpr std::string_view kFile = "file:";
constexpr std::int64_t kMostBlocks = 1 << 15;  // tags have a number for each
constexpr int kTimings = 3;                    // of every block; the best counts

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
  if (!is_file(config))
    return build(parse_schedule_kind(config.pipeline.schedule), shape_of(config));
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

// Sums of the tied embedding are between the first rank and the last, or within the first.
void check_ends(const Schedule& schedule, Problems& problems) {
  const int first = schedule.placement.front(), last = schedule.placement.back();
  const int end = schedule.shape.ranks - 1;
  if (first != 0 || (last != 0 && last != end))
    problems.push_back(
        {"pipeline.schedule", fmt::format("the file places the first stage on rank {} and the last "
                                          "on rank {}; a run has them on 0, and on 0 or {}",
                                          first, last, end)});
}

Problems check_file(const RunConfig& config) {
  Problems problems;
  try {
    const Schedule schedule = schedule_of(config);
    compare_shapes(schedule.shape, shape_of(config), problems);
    check_ends(schedule, problems);
    const Schedule complete = lowered(schedule);
    for (Problem& p : check(complete))
      problems.push_back({"pipeline.schedule", p.where.empty() ? p.what : p.where + ": " + p.what});
    if (!problems.empty() && schedule.shape == shape_of(config))
      problems.back().what += "\n" + picture_of_fault(complete);
  } catch (const ConfigError& error) {
    for (const Problem& p : error.problems()) problems.push_back({"pipeline.schedule", p.what});
  }
  return problems;
}

MemorySpec delta_of(const std::string& first, const std::string& reference,
                    const std::string& store, std::int64_t budget, std::int64_t hash_every) {
  return Delta{.first = parse_codec(first),
               .reference = reference == "f32"    ? Reference::f32
                            : reference == "bf16" ? Reference::bf16
                                                  : Reference::q8,
               .folder = store == "ram" ? "" : store,
               .budget_bytes = static_cast<std::uint64_t>(budget),
               .hash_every = static_cast<int>(hash_every)};
}

}  // namespace

LinkSpec activation_link(const RunConfig& config) {
  const PpActivationSection& a = config.pp_activation;
  LinkSpec link{.name = "pp.activation",
                .codec = parse_codec(a.codec),
                .memory = NoMemory{},
                .seed = static_cast<std::uint64_t>(config.run.seed)};
  if (a.memory == "delta")
    link.memory = delta_of(a.first, a.reference, a.store, a.budget, a.hash_every);
  return link;
}

LinkSpec gradient_link(const RunConfig& config) {
  const PpGradientSection& g = config.pp_gradient;
  LinkSpec link{.name = "pp.gradient",
                .codec = parse_codec(g.codec),
                .memory = NoMemory{},
                .seed = static_cast<std::uint64_t>(config.run.seed)};
  if (g.memory == "delta")
    link.memory =
        delta_of(g.first, g.reference, g.store, g.budget, config.pp_activation.hash_every);
  else if (g.memory == "feedback")
    link.memory = ErrorFeedback{.reset = g.reset ? Reset::step : Reset::never};
  return link;
}

namespace {

TensorSpec boundary_of(const RunConfig& config, const GptShape& shape) {
  return {.dtype = config.run.dtype == "float64" ? Dtype::f64 : Dtype::f32,
          .shape = {config.microbatch_size() * config.model.context, shape.width}};
}

std::vector<double> sums_of(const std::vector<BlockTimes>& blocks) {
  std::vector<double> sums;
  for (const BlockTimes& b : blocks) sums.push_back(b.forward + b.backward);
  return sums;
}

std::vector<std::int64_t> split_of(const std::vector<BlockRange>& ranges, std::int64_t layers) {
  std::vector<std::int64_t> split;
  for (const BlockRange& r : ranges)
    split.push_back(std::min(r.end, layers + 1) - std::max<std::int64_t>(r.begin, 1));
  return split;
}

// What the parameters of each pipeline rank weigh on the wire, whole and encoded.
struct SumBytes {
  std::vector<double> exact, encoded;
};

double encoded_bytes(const GradientPolicy& policy, const ParameterSpec& p) {
  std::int64_t elements = 1;
  for (const std::int64_t size : p.sizes) elements *= size;
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

SumBytes sum_bytes(const RunConfig& config, const GptShape& shape, const PipelinePlan& plan) {
  const auto ranks = static_cast<std::size_t>(config.mesh.pp);
  const double passes =
      2 * static_cast<double>(config.mesh.dp - 1) / static_cast<double>(config.mesh.dp);
  SumBytes bytes{std::vector<double>(ranks), std::vector<double>(ranks)};
  const std::vector<ParameterSpec> specs = parameter_specs(shape);
  const GradientPolicy policy = policy_of(config);
  for (std::size_t r = 0; r < ranks; ++r) {
    const HeldBlocks held = held_blocks(plan, block_count(shape), static_cast<int>(r));
    for (std::size_t p = 0; p < specs.size(); ++p) {
      if (!held[static_cast<std::size_t>(first_block(shape, p))]) continue;
      if (p == 0 && config.mesh.pp > 1 && config.embedding_tied.fused) continue;
      std::int64_t elements = 1;
      for (const std::int64_t size : specs[p].sizes) elements *= size;
      bytes.exact[r] += passes * static_cast<double>(4 * elements);
      bytes.encoded[r] += passes * encoded_bytes(policy, specs[p]);
    }
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
  return config.pipeline.split == "measured" || config.pp_gradient.when == "critical" ||
         (config.dp_gradient.stages == "auto" && config.mesh.dp > 1);
}

std::vector<std::int64_t> decide_split(const RunConfig& config, const GptShape& shape,
                                       const std::vector<BlockTimes>& times) {
  const int stages = shape_of(config).stages;
  const std::string& split = config.pipeline.split;
  if (split != "auto" && split != "measured") {
    const std::vector<std::int64_t> given = parse_split(split);
    Problems problems = check_split(given, shape.layers, stages);
    for (Problem& p : problems) p.where = "pipeline.split";
    if (!problems.empty()) throw ConfigError(std::move(problems));
    return given;
  }
  if (block_count(shape) < stages)
    throw ConfigError({{"mesh.pp", fmt::format("{} stages, but the model has {} blocks (an "
                                               "embedding, {} layers, a head)",
                                               stages, block_count(shape), shape.layers)}});
  const std::vector<double> costs =
      split == "measured"
          ? sums_of(times)
          : counted_costs(shape.layers, shape.width, config.model.context, shape.vocabulary);
  return split_of(partition(costs, stages), shape.layers);
}

}  // namespace

std::string to_json(const PipelineDecisions& d) {
  nlohmann::ordered_json json = {{"schedule", to_text(d.schedule)},
                                 {"split", d.split},
                                 {"encoded", nlohmann::ordered_json::array()},
                                 {"encoded_ranks", d.encoded_ranks}};
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
                        .encoded_ranks = json.at("encoded_ranks").get<int>()};
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
  Problems problems = is_file(config)
                          ? check_file(config)
                          : check(parse_schedule_kind(config.pipeline.schedule), shape_of(config));
  for (Problem& p : problems)
    if (p.where.empty()) p.where = "pipeline.schedule";
  if (config.mesh.pp == 1) return problems;
  for (const auto& [section, link] : {std::pair{"pp.activation", activation_link(config)},
                                      {"pp.gradient", gradient_link(config)}})
    for (const Problem& p : check(link)) problems.push_back({section, p.what});
  return problems;
}

std::vector<BlockTimes> measure_blocks(const RunConfig& config, const GptShape& shape,
                                       const at::TensorOptions& options) {
  GptShape one = shape;
  one.layers = 1;
  const Gpt gpt = make_gpt(one, 1, options);
  const at::Tensor ids =
      at::randint(0, shape.vocabulary, {config.microbatch_size(), config.model.context}, at::kLong);
  const Microbatch microbatch{
      .ids = ids.to(options.device()), .targets = ids.to(options.device()), .sample_keys = {}};
  std::vector<BlockTimes> best(
      3, {std::numeric_limits<double>::max(), std::numeric_limits<double>::max()});
  for (int round = 0; round < kTimings; ++round) {
    at::Tensor x;
    std::vector<std::unique_ptr<Stage>> stages;
    for (std::size_t b = 0; b < 3; ++b) {
      const auto first = static_cast<std::int64_t>(b);
      stages.push_back(std::make_unique<Stage>(gpt, BlockRange{first, first + 1}, StageOptions{}));
      const Stopwatch watch;
      x = stages[b]->forward(0, microbatch, x);
      wait_for(x);
      best[b].forward = std::min(best[b].forward, watch.seconds());
    }
    at::Tensor gradient = at::scalar_tensor(1.0, x.options());
    for (std::size_t b = 3; b-- > 0;) {
      const Stopwatch watch;
      gradient = stages[b]->backward(0, gradient, {});
      wait_for(gradient.defined() ? gradient : gpt.value(0).grad());
      best[b].backward = std::min(best[b].backward, watch.seconds());
    }
  }
  std::vector<BlockTimes> times(static_cast<std::size_t>(block_count(shape)), best[1]);
  times.front() = best[0];
  times.back() = best[2];
  return times;
}

Costs costs_of(const RunConfig& config, const GptShape& shape, const PipelineDecisions& decisions,
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
  const TensorSpec tensor = boundary_of(config, shape);
  const auto seconds = [&](const CodecSpec& codec) {
    return static_cast<double>(max_payload_bytes(codec, tensor)) / link.bytes_per_second;
  };
  const SumBytes sums = sum_bytes(config, shape, plan_of(config, decisions));
  for (std::size_t rank = 0; rank < sums.exact.size(); ++rank) {  // all with its first stage
    const int first = stages_of_rank(decisions.schedule, static_cast<int>(rank)).front();
    const bool is_encoded = static_cast<int>(rank) < decisions.encoded_ranks;
    costs.stages[static_cast<std::size_t>(first)].reduction =
        (is_encoded ? sums.encoded : sums.exact)[rank] / link.bytes_per_second;
  }
  const CodecSpec gradient = gradient_link(config).codec;
  costs.edges = {{.activation = seconds(activation_link(config).codec),
                  .gradient = seconds(config.pp_gradient.when == "always" ? gradient : Raw{}),
                  .encoded_gradient = seconds(gradient)}};
  return costs;
}

PipelineDecisions decide_pipeline(const RunConfig& config, const GptShape& shape,
                                  const LinkFacts& link, const at::TensorOptions& options) {
  PipelineDecisions d{.schedule = schedule_of(config),
                      .split = {shape.layers},
                      .encoded = {},
                      .encoded_ranks = static_cast<int>(config.mesh.pp)};
  if (config.stages() == 1) return d;
  if (block_count(shape) > kMostBlocks)
    throw ConfigError({{"mesh.pp", fmt::format("{} layers are more than a pipeline can have ({})",
                                               shape.layers, kMostBlocks - 2)}});
  const std::vector<BlockTimes> times =
      needs_times(config) ? measure_blocks(config, shape, options)
                          : std::vector<BlockTimes>(static_cast<std::size_t>(block_count(shape)));
  d.split = decide_split(config, shape, times);
  const Schedule complete = lowered(d.schedule);
  const Costs costs = costs_of(config, shape, d, times, link);
  if (config.pp_gradient.when != "always")
    d.encoded = select_gradient_sends(complete, parse_when(config.pp_gradient.when), costs);
  // Without a rate there is nothing to choose by: all ranks encode.
  if (config.dp_gradient.stages == "auto" && config.mesh.dp > 1 && link.bytes_per_second > 0) {
    const SumBytes bytes = sum_bytes(config, shape, plan_of(config, d));
    d.encoded_ranks = ranks_worth_encoding(slack_of_ranks(complete, costs),
                                           divided(bytes.exact, link.bytes_per_second),
                                           divided(bytes.encoded, link.bytes_per_second));
  }
  return d;
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

std::uint64_t reference_bytes(const LinkSpec& link, const RunConfig& config, const GptShape& shape,
                              std::uint64_t samples) {
  const auto* delta = std::get_if<Delta>(&link.memory);
  if (delta == nullptr) return 0;
  const auto elements = static_cast<std::uint64_t>(config.model.context * shape.width);
  const std::uint64_t bytes = record_bytes(delta->reference, elements);
  return samples * ((bytes + 4095) / 4096 * 4096);
}

}  // namespace laconic
