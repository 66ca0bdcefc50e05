#include "laconic/train/policy.hpp"

#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/config/stage_choice.hpp"

namespace laconic {

namespace {

bool is_raw(const std::string& codec) {
  return std::holds_alternative<Raw>(parse_codec(codec));
}

bool is_plain(const DpGradientSection& gradient) {
  return gradient.method == GradientMethod::codec && is_raw(gradient.codec) &&
         (gradient.down.empty() || is_raw(gradient.down));
}

// The name of an algorithm. "auto": messages that may be added on the way go round in a ring, where
// each link carries one stream, which fills it better than all at once to all (bench/results).
std::string algorithm_of(AllReduceKind kind, bool is_plain) {
  if (kind == AllReduceKind::automatic)
    kind = is_plain ? AllReduceKind::ring : AllReduceKind::direct;
  return std::string(name_in(kAllReduceKindNames, kind));
}

void check_tied(const RunConfig& config, Problems& problems) {
  const EmbeddingTiedSection& tied = config.embedding_tied;
  Problems found = check(tied_policy_of(config), config.run.dtype,
                         static_cast<int>(tied.fused ? 2 * config.mesh.dp : 2));
  append(problems, under("embedding.tied", std::move(found)));
  if (config.dp_gradient.method == GradientMethod::compressed_adam && !tied.fused)
    problems.push_back({"embedding.tied.fused",
                        fmt::format("fused = false with dp.gradient.method = \"compressed_adam\" "
                                    "and mesh.pp = {}: moments of both ends go into one sum",
                                    config.mesh.pp)});
  if (config.local.steps > 0 && !is_raw(tied.codec))
    problems.push_back(
        {"embedding.tied.codec",
         fmt::format("codec = \"{}\" with local.steps = {}: gradients of inner steps and changes "
                     "of rounds take the same way, and one residual cannot serve both: use raw",
                     tied.codec, config.local.steps)});
}

}  // namespace

GradientPolicy policy_of(const RunConfig& config) {
  const DpGradientSection& g = config.dp_gradient;
  return {.method =
              g.method == GradientMethod::power_sgd ? ReduceMethod::power_sgd : ReduceMethod::codec,
          .up = parse_codec(g.codec),
          .down = parse_codec(g.down.empty() ? g.codec : g.down),
          .up_feedback = g.feedback != FeedbackOf::none,
          .down_feedback = g.feedback == FeedbackOf::both,
          .warm_up_steps = g.warmup,
          .algorithm = algorithm_of(g.algorithm, is_plain(g)),
          .whole_algorithm = algorithm_of(g.algorithm, true),
          .rank = g.rank,
          .min_ratio = g.min_ratio,
          .by_block = g.by_block,
          .seed = static_cast<std::uint64_t>(config.run.seed)};
}

GradientPolicy policy_of(const RunConfig& config, int pp, int encoded) {
  if (pp < encoded) return policy_of(config);
  return {.algorithm = algorithm_of(config.dp_gradient.algorithm, true),
          .seed = static_cast<std::uint64_t>(config.run.seed)};
}

int encoded_ranks(const RunConfig& config, std::optional<int> automatic) {
  const StageChoice choice = parse_stage_choice(config.dp_gradient.stages);
  LACONIC_ASSERT(choice.kind != StageChoice::Kind::automatic || automatic.has_value(),
                 "nobody said what auto comes to");
  return encoded_ranks(choice, static_cast<int>(config.mesh.pp), automatic.value_or(0));
}

GradientPolicy tied_policy_of(const RunConfig& config) {
  const CodecSpec codec = parse_codec(config.embedding_tied.codec);
  const bool is_plain = std::holds_alternative<Raw>(codec);
  return {.up = codec,
          .down = codec,
          .warm_up_steps = config.dp_gradient.warmup,
          .algorithm = algorithm_of(
              is_plain ? config.dp_gradient.algorithm : AllReduceKind::automatic, is_plain),
          .whole_algorithm = algorithm_of(config.dp_gradient.algorithm, true),
          .seed = static_cast<std::uint64_t>(config.run.seed)};
}

Problems check_parallel(const RunConfig& config) {
  Problems problems;
  if (config.mesh.dp > 1 || config.mesh.pp > 1)
    append(problems, under("dp.gradient", check(policy_of(config), config.run.dtype,
                                                static_cast<int>(config.mesh.dp))));
  if (config.mesh.pp == 1) return problems;
  if (config.dp_gradient.algorithm == AllReduceKind::native)
    problems.push_back(
        {"dp.gradient.algorithm",
         fmt::format("\"native\" sums over all {} ranks, and each of the {} parts of a pipeline "
                     "has {}: use \"auto\"",
                     config.mesh.pp * config.mesh.dp, config.mesh.pp, config.mesh.dp)});
  check_tied(config, problems);
  return problems;
}

}  // namespace laconic
