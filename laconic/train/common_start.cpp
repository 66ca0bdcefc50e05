#include "laconic/train/common_start.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "laconic/architecture/grid_codes.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/projection_choice.hpp"
#include "laconic/config/row_choice.hpp"
#include "laconic/data/window.hpp"
#include "laconic/file/checksum.hpp"
#include "laconic/policy/class_policy.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/train/gpu_report.hpp"
#include "laconic/train/schedule_choice.hpp"
#include "laconic/update/update_rule.hpp"

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
                                    "pp.gradient.boundaries", "dp.gradient.stages", "train.batch",
                                    "train.microbatch"});
  });
}

// And what links remember, as long as they are the same links and see the same samples.
bool has_same_links(const std::vector<std::string>& changes) {
  return asks_the_same(changes) &&
         std::none_of(changes.begin(), changes.end(), [](const std::string& change) {
           return begins_with_any(change, {"pp.", "data.shards", "data.train", "run.seed"});
         });
}

RankPart held_here(const RunConfig& config, const Family& family,
                   const PipelineDecisions& decisions, const World& world) {
  RankPart part{.blocks = {},
                .place = {grid_plan_of(config, family), world.coord(),
                          table_cuts(config, model_spec(family, context_of(family)))}};
  if (config.mesh.pp > 1) part.blocks = held_blocks(plan_of(config, decisions), world.pp_member());
  return part;
}

// Of the directions of a boundary that nobody trains; 0: not held.
std::uint64_t digest_of_basis(const at::Tensor& basis) {
  if (!basis.defined()) return 0;
  const at::Tensor host = on_host(basis);
  Checksum sum;
  sum.update(bytes_of_tensor(host));
  return sum.value();
}

// Check sums of all that a rank holds, of each parameter that several blocks use, and of what both
// sides of a boundary draw; 0: not held.
std::vector<std::uint64_t> digests_of(const Weights& weights) {
  Checksum all;
  std::vector<std::uint64_t> digests = {0};
  for (std::size_t number = 0; number < weights.spec.parameters.size(); ++number)
    if (users_of(weights.spec, number).size() > 1) digests.push_back(0);
  std::size_t shared = 0;
  for (std::size_t number = 0; number < weights.spec.parameters.size(); ++number) {
    const bool is_shared = users_of(weights.spec, number).size() > 1;
    shared += is_shared ? 1 : 0;
    const std::size_t place = weights.places[number];
    if (place >= weights.parameters.size() || weights.parameters[place].number != number) continue;
    if (is_cut_by_replicas(weights, weights.parameters[place])) continue;  // others have others
    const at::Tensor host = on_host(weights.parameters[place].value);
    all.update(bytes_of_tensor(host));
    if (!is_shared) continue;
    Checksum one;
    one.update(bytes_of_tensor(host));
    digests[shared] = one.value();
  }
  digests.front() = all.value();
  for (const at::Tensor& basis : weights.bases) digests.push_back(digest_of_basis(basis));
  return digests;
}

// What a rank's GPU cannot do is said by all ranks: the others are not lost for it.
at::TensorOptions options_on_all_ranks(const RunConfig& config, int local_rank, World& world) {
  at::TensorOptions options;
  Problems problems;
  try {
    options = tensor_options(config, local_rank);
  } catch (const ConfigError& error) {
    problems = error.problems();
  }
  refuse_on_all(problems, world);
  return options;
}

}  // namespace

Problems check_mesh(const RunConfig& config, int ranks) {
  Problems problems = check(mesh_of(config), ranks);
  if (!problems.empty()) return problems;
  problems = check_parallel(config);
  append(problems, check_pipeline(config));
  return problems;
}

CommonStart start_all_ranks(const TrainOptions& options, const DataFacts& data, World& world) {
  CommonStart common;
  std::vector<std::string> notes;
  const RunConfig& config = options.config;
  const at::TensorOptions tensors = options_on_all_ranks(config, options.start.local_rank, world);
  const std::vector<RankResources> facts =
      world.gather_values(measure_rank(tensors, options.memory_bytes));
  common.gpus = describe_gpus(facts, config.network.preflight, world);
  const auto decide = [&](const Family& family, const std::string& checkpoint) {
    refuse(check_grid(config, family));
    refuse(check_rows(config, family));
    refuse(check_projected(config, family));
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
    const auto context = static_cast<std::uint64_t>(config.model.context);
    const std::uint64_t samples =
        data.records > 0 ? data.records : sample_count(data.tokens, context);
    const GridPlan grid = grid_plan_of(config, family);
    ModelSpec spec = model_spec(family, config.model.context);
    add_grid_codes(spec, grid);
    const RunFacts run{.spec = spec,
                       .grid = grid,
                       .link = options.link,
                       .samples = samples,
                       .ranks = facts,
                       .processors = shared_processors(facts)};
    if (!goes_on)
      common.decisions = config.pipeline.is_automatic() && config.mesh.pp > 1
                             ? choose_schedule(config, family, run, tensors)
                             : decide_pipeline(config, family, options.link, tensors);
    const RunConfig decided = as_decided(config, common.decisions);
    const EstimateRequest request = request_of(decided, common.decisions, run);
    common.estimate = estimate_run(request);
    if (!check_memory(common.estimate).empty()) {
      const MemoryAdvice advice = what_would_help(request);
      refuse(check_memory(common.estimate, &advice));
    }
    return held_here(config, family, common.decisions, world);
  };
  const std::string answer = world.decide_on_rank_0([&] {
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
  common.start = start_run(config, follow, data, [&](const Family& family, const std::string&) {
    return held_here(config, family, common.decisions, world);
  });
  return common;
}

void require_equal_models(const Weights& weights, World& world, std::int64_t step) {
  if (world.is_alone()) return;
  const std::vector<std::uint64_t> mine = digests_of(weights);
  const std::vector<Bytes> all = world.gather(as_bytes(std::span<const std::uint64_t>(mine)));
  // Who had it first: replicas of a stage all that they hold, and stages what they share; another
  // place in a tensor grid has other parts.
  std::map<std::tuple<int, int, std::size_t>, std::pair<Rank, std::uint64_t>> first;
  std::vector<std::string> others;
  for (std::size_t r = 0; r < all.size(); ++r)
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const auto rank = static_cast<Rank>(r);
      const auto digest = get<std::uint64_t>(all[r], i * sizeof(std::uint64_t));
      if (digest == 0) continue;
      const Coord at = coord_of(world.mesh(), rank);
      const int shard = index_along(world.mesh(), at, {kTensorAxes.begin(), kTensorAxes.end()});
      const auto [found, is_new] = first.try_emplace({i == 0 ? at.pp : 0, shard, i}, rank, digest);
      if (!is_new && found->second.second != digest)
        others.push_back(fmt::format("rank {} and rank {}", rank, found->second.first));
    }
  if (!others.empty())
    throw std::runtime_error(
        fmt::format("step {}: {} hold different models: not the same weights, program or processor "
                    "arithmetic at the start, or damage since",
                    step, join(others, ", ")));
}

}  // namespace laconic
