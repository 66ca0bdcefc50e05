#include "laconic/train/together.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/checksum.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/train/update_rule.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

bool begins_with_any(const std::string& text, std::initializer_list<const char*> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const char* prefix) { return text.starts_with(prefix); });
}

// What was decided before counts as long as the questions are the same.
bool asks_the_same(const std::vector<std::string>& changes) {
  return std::none_of(changes.begin(), changes.end(), [](const std::string& change) {
    return begins_with_any(change, {"mesh.", "pipeline.", "pp.gradient.when", "pp.gradient.codec",
                                    "dp.gradient.stages", "train.batch", "train.microbatch"});
  });
}

// And what links remember, as long as they are the same links and see the same samples.
bool has_same_links(const std::vector<std::string>& changes) {
  return asks_the_same(changes) &&
         std::none_of(changes.begin(), changes.end(), [](const std::string& change) {
           return begins_with_any(change, {"pp.", "data.shards", "data.train", "run.seed"});
         });
}

HeldBlocks held_here(const RunConfig& config, const PipelineDecisions& decisions,
                     const GptShape& shape, const World& world) {
  if (config.mesh.pp == 1) return {};
  return held_blocks(plan_of(config, decisions), block_count(shape), world.pp_member());
}

struct Digests {
  std::uint64_t model = 0;
  std::uint64_t tied = 0;  // 0: not held
};

std::uint64_t digest_of(const Parameter& parameter) {
  Checksum sum;
  sum.update(bytes_of_tensor(on_host(parameter.value)));
  return sum.value();
}

Digests digests_of(const Gpt& gpt) {
  Checksum sum;
  Digests digests;
  for (const Parameter& p : gpt.parameters) {
    sum.update(bytes_of_tensor(on_host(p.value)));
    if (is_tied(p)) digests.tied = digest_of(p);
  }
  digests.model = sum.value();
  return digests;
}

}  // namespace

Problems check_mesh(const RunConfig& config, int ranks) {
  Problems problems = check(mesh_of(config), ranks);
  if (!problems.empty()) return problems;
  problems = check_parallel(config);
  append(problems, check_pipeline(config));
  return problems;
}

CommonStart start_together(const TrainOptions& options, const DataFacts& data, World& world) {
  CommonStart common;
  std::vector<std::string> notes;
  const RunConfig& config = options.config;
  const auto decide = [&](const GptShape& shape, const std::string& checkpoint) {
    const std::vector<std::string> changes =
        checkpoint.empty() ? std::vector<std::string>() : changes_since(checkpoint, config);
    const CheckpointInfo info =
        checkpoint.empty() ? CheckpointInfo() : read_checkpoint_info(checkpoint);
    const std::string& before = info.pipeline;
    common.steering = still_good(parse_steering(info.steering), changes, config, notes);
    bool goes_on = !before.empty() && asks_the_same(changes);
    if (goes_on) common.decisions = parse_decisions(before);
    goes_on = goes_on && still_holds(common.decisions, config);
    common.has_links = goes_on && has_same_links(changes);
    if (!goes_on)
      common.decisions = decide_pipeline(config, shape, options.link, tensor_options(config));
    return held_here(config, common.decisions, shape, world);
  };
  const std::string answer = world.first_decides([&] {
    common.start = start_run(config, options.start, data, decide);
    common.start.notes.insert(common.start.notes.end(), notes.begin(), notes.end());
    const std::string from =
        common.start.is_resumed ? fs::absolute(common.start.from).string() : "none";
    return nlohmann::json{{"from", from},
                          {"has_links", common.has_links},
                          {"pipeline", to_json(common.decisions)},
                          {"steering", to_json(common.steering)}}
        .dump();
  });
  if (world.is_first()) return common;
  const nlohmann::json decided = nlohmann::json::parse(answer);
  common.decisions = parse_decisions(decided["pipeline"].get<std::string>());
  common.has_links = decided["has_links"];
  common.steering = parse_steering(decided["steering"].get<std::string>());
  StartOptions follow = options.start;
  follow.follows = true;
  follow.resume = decided["from"];
  common.start = start_run(config, follow, data, [&](const GptShape& shape, const std::string&) {
    return held_here(config, common.decisions, shape, world);
  });
  return common;
}

void require_equal_models(const Gpt& gpt, World& world, std::int64_t step) {
  if (world.is_alone()) return;
  const std::vector<Digests> digests = world.gather_values(digests_of(gpt));
  std::vector<std::string> others;
  const auto compare = [&](std::size_t rank, Rank with, std::uint64_t Digests::*digest) {
    if (digests[rank].*digest != digests[static_cast<std::size_t>(with)].*digest)
      others.push_back(fmt::format("rank {} and rank {}", rank, with));
  };
  for (std::size_t r = 0; r < digests.size(); ++r) {
    Coord first = coord_of(world.mesh(), static_cast<Rank>(r));
    first.dp = 0;
    compare(r, rank_of(world.mesh(), first), &Digests::model);
    first.pp = 0;
    if (digests[r].tied != 0) compare(r, rank_of(world.mesh(), first), &Digests::tied);
  }
  if (!others.empty())
    throw std::runtime_error(
        fmt::format("step {}: {} hold different models: not the same weights, program or processor "
                    "arithmetic at the start, or damage since",
                    step, join(others, ", ")));
}

}  // namespace laconic
