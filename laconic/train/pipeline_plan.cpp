#include "laconic/train/pipeline_plan.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/target.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/train/batch.hpp"

namespace laconic {

namespace {

// Until a GPU has come so far: it is given work, and the host goes on.
void wait_for(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) (void)tensor.flatten()[0].item<double>();
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

namespace {

// What the block before hands on, for as many samples: any numbers.
Seam random_seam(const ModelSpec& spec, std::int64_t block, const Batch& batch,
                 const at::TensorOptions& options) {
  Seam seam;
  if (block == 0) return seam;
  for (const SeamTensor& tensor : spec.blocks[static_cast<std::size_t>(block) - 1].out) {
    std::vector<std::int64_t> sizes = {batch.samples()};
    sizes.insert(sizes.end(), tensor.per_sample.begin(), tensor.per_sample.end());
    seam.push_back(at::rand(sizes, at::kFloat).to(options.requires_grad(false)));
  }
  return seam;
}

}  // namespace

// Only one block of each kind is made, and each gets an input and a gradient that were drawn.
std::vector<BlockTimes> measure_blocks(const RunConfig& config, const Family& family,
                                       const at::TensorOptions& options) {
  const ModelSpec spec = model_spec(family, config.model.context);
  const std::vector<std::int64_t> chosen = blocks_of_each_kind(spec);
  HeldBlocks held(spec.blocks.size(), false);
  for (const std::int64_t b : chosen) held[static_cast<std::size_t>(b)] = true;
  Weights weights = make_weights(family, 1, options, held, config.model.context);
  const Batch batch = random_batch(config, family, options.device());
  const Pass pass{.negatives = negatives_key_of(config, 0, 0)};
  constexpr double kLongest = std::numeric_limits<double>::max();
  std::map<std::string, BlockTimes> best;
  for (const BlockSpec& block : spec.blocks) best[block.kind] = {kLongest, kLongest};
  for (int round = 0; round < kBlockTimings; ++round) {
    for (const std::int64_t b : chosen) {
      const BlockSpec& block = spec.blocks[static_cast<std::size_t>(b)];
      BlockTimes& shortest = best[block.kind];
      Stage stage(weights, {b, b + 1}, {});
      const Seam input = random_seam(spec, b, batch, options);
      const Stopwatch forward;
      const Seam output = stage.forward(0, batch, pass, input);
      wait_for(output.front());
      shortest.forward = std::min(shortest.forward, forward.seconds());
      const Seam gradient = block.out.empty()
                                ? Seam{at::scalar_tensor(1.0, output.front().options())}
                                : random_seam(spec, b + 1, batch, options);
      const Stopwatch backward;
      const Seam of_input = stage.backward(0, gradient, {});
      wait_for(of_input.empty() ? weights.leaves.front().front().sum : of_input.front());
      shortest.backward = std::min(shortest.backward, backward.seconds());
    }
  }
  std::vector<BlockTimes> times;
  for (const BlockSpec& block : spec.blocks) times.push_back(best[block.kind]);
  return times;
}

PipelineDecisions decide_pipeline(const RunConfig& config, const Family& family,
                                  const LinkFacts& link, const at::TensorOptions& options) {
  const ModelSpec spec = model_spec(family, config.model.context);
  return decide_pipeline(config, spec, link,
                         [&] { return measure_blocks(config, family, options); });
}

RunConfig as_decided(RunConfig config, const PipelineDecisions& decisions) {
  config.pipeline.decided_microbatch = decisions.microbatch;
  return config;
}

bool still_holds(const PipelineDecisions& decisions, const RunConfig& config) {
  return !is_schedule_file(config) || schedule_of(config) == decisions.schedule;
}

}  // namespace laconic
