#include "laconic/policy/class_policy.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/place_choice.hpp"
#include "laconic/config/stage_choice.hpp"

namespace laconic {

namespace {

bool is_lossy_text(const std::string& codec) {
  return is_lossy(parse_codec(codec));
}

bool is_plain(const DpGradientSection& gradient) {
  return gradient.method == GradientMethod::codec && !is_lossy_text(gradient.codec) &&
         (gradient.down.empty() || !is_lossy_text(gradient.down));
}

// "auto": messages that may be added on the way go round in a ring, where each link carries one
// stream, which fills it better than all at once to all (bench/results).
SumAlgorithm algorithm_of(AllReduceKind kind, bool is_plain) {
  switch (kind) {
    case AllReduceKind::automatic: return is_plain ? SumAlgorithm::ring : SumAlgorithm::direct;
    case AllReduceKind::direct: return SumAlgorithm::direct;
    case AllReduceKind::ring: return SumAlgorithm::ring;
    case AllReduceKind::doubling: return SumAlgorithm::doubling;
    case AllReduceKind::native: return SumAlgorithm::native;
  }
  LACONIC_ASSERT(false, fmt::format("algorithm {}", static_cast<int>(kind)));
  return SumAlgorithm::direct;
}

// Members of a sum over the stages that share a parameter, at least: two, with all their replicas
// if it is fused.
int members_of_shared(const RunConfig& config) {
  return static_cast<int>(config.embedding_tied.fused ? 2 * config.mesh.dp : 2);
}

void check_shared(const RunConfig& config, Problems& problems) {
  const EmbeddingTiedSection& tied = config.embedding_tied;
  Problems found =
      check(shared_policy_of(config), config.run.master_type(), members_of_shared(config));
  append(problems, under("embedding.tied", std::move(found)));
  if (config.dp_gradient.method == GradientMethod::compressed_adam && !tied.fused)
    problems.push_back({"embedding.tied.fused",
                        fmt::format("fused = false with dp.gradient.method = \"compressed_adam\" "
                                    "and mesh.pp = {}: moments of both ends go into one sum",
                                    config.mesh.pp)});
  const bool is_low_rank = tied.method == GradientMethod::power_sgd;
  if (is_low_rank && config.dp_gradient.method == GradientMethod::compressed_adam)
    problems.push_back(
        {"embedding.tied.method",
         "method = \"power_sgd\" with dp.gradient.method = \"compressed_adam\": after warm-up "
         "moments "
         "take the way of gradients, and one residual cannot serve both: use codec"});
  if (config.local.steps > 0 && (is_lossy_text(tied.codec) || is_low_rank))
    problems.push_back(
        {is_low_rank ? "embedding.tied.method" : "embedding.tied.codec",
         fmt::format("{} = \"{}\" with local.steps = {}: gradients of inner steps and changes "
                     "of rounds take the same way, and one residual cannot serve both: use {}",
                     is_low_rank ? "method" : "codec", is_low_rank ? "power_sgd" : tied.codec,
                     config.local.steps, is_low_rank ? "codec" : "raw")});
}

// A link of a section that remembers nothing.
LinkSpec link_of(const char* name, const std::string& codec, const RunConfig& config) {
  return {.name = name,
          .codec = parse_codec(codec),
          .memory = NoMemory{},
          .seed = static_cast<std::uint64_t>(config.run.seed)};
}

// `hash_every` is one for both directions.
template <class Section>
MemorySpec delta_of(const Section& section, std::int64_t hash_every) {
  return Delta{.first = parse_codec(section.first),
               .reference = section.reference,
               .folder = section.store == kInRam ? "" : section.store,
               .budget_bytes = static_cast<std::uint64_t>(section.budget),
               .device_bytes = static_cast<std::uint64_t>(section.device_memory),
               .hash_every = static_cast<int>(hash_every)};
}

Problems check_messages(const GridMessages& messages, const CodecSpec& codec) {
  if (std::holds_alternative<Raw>(codec))
    return {{"codec", "raw instead of a codec: bypass the class to send it raw"}};
  const auto lossy = [](const CodecSpec& own) { return is_lossy(own); };
  if (std::ranges::none_of(messages.codecs, lossy))
    return {{"codec", fmt::format("{} instead of raw: messages that lose nothing stay as they are",
                                  to_text(codec))}};
  const auto learned = [](const CodecSpec& own) {
    return std::holds_alternative<AutoEncoder>(own);
  };
  if (learned(codec) || std::ranges::any_of(messages.codecs, learned))
    return {{"codec", fmt::format("{} with learned codes, whose maps are parameters of the run: "
                                  "bypass the class",
                                  to_text(codec))}};
  return all_at("codec", check(codec, TensorSpec{messages.dtype, {64, 64}}));
}

Problems check_link(LinkSpec link, const CodecSpec& codec) {
  if (std::holds_alternative<Raw>(codec))
    return {{"codec", "raw instead of a codec: bypass the class to send it raw"}};
  if (std::holds_alternative<Raw>(link.codec))
    return {{"codec", fmt::format("{} instead of raw: messages that lose nothing stay as they are",
                                  to_text(codec))}};
  link.codec = codec;
  return all_at("codec", check(link));
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
          .raw_algorithm = algorithm_of(g.algorithm, true),
          .rank = g.rank,
          .min_ratio = g.min_ratio,
          .by_block = g.by_block,
          .seed = static_cast<std::uint64_t>(config.run.seed),
          .lane_bytes = g.lane_bytes};
}

void choose_lanes(bool are_all_on_gpus, RunConfig& config) {
  constexpr std::uint64_t kGpuLane = std::uint64_t{8} << 20;
  config.dp_gradient.lane_bytes = are_all_on_gpus ? kGpuLane : 0;
}

std::optional<RunConfig> warm_up_of(const RunConfig& config) {
  const LocalSection& local = config.local;
  const bool has_one = local.steps > 0 && local.method == LocalMethod::linear;
  if (!has_one || local.warmup_codec.empty()) return std::nullopt;
  RunConfig warm = config;
  DpGradientSection& gradient = warm.dp_gradient;
  gradient.method = GradientMethod::codec;
  gradient.codec = local.warmup_codec;
  gradient.down.clear();
  gradient.feedback = FeedbackOf::none;
  gradient.warmup = 0;
  return warm;
}

GradientPolicy policy_of(const RunConfig& config, const SumPlace& place) {
  if (place.pp < place.encoded) return policy_of(config);
  return {.algorithm = algorithm_of(config.dp_gradient.algorithm, true),
          .seed = static_cast<std::uint64_t>(config.run.seed),
          .lane_bytes = config.dp_gradient.lane_bytes};
}

int encoded_ranks(const RunConfig& config, std::optional<int> automatic) {
  const StageChoice choice = parse_stage_choice(config.dp_gradient.stages);
  LACONIC_ASSERT(choice.kind != StageChoice::Kind::automatic || automatic.has_value(),
                 "nobody said what auto comes to");
  return encoded_ranks(choice, static_cast<int>(config.mesh.pp), automatic.value_or(0));
}

GradientPolicy shared_policy_of(const RunConfig& config) {
  const EmbeddingTiedSection& tied = config.embedding_tied;
  const CodecSpec codec = parse_codec(tied.codec);
  const bool is_low_rank = tied.method == GradientMethod::power_sgd;
  const bool is_plain = !is_lossy(codec) && !is_low_rank;
  return {.method = is_low_rank ? ReduceMethod::power_sgd : ReduceMethod::codec,
          .up = codec,
          .down = codec,
          .warm_up_steps = config.dp_gradient.warmup,
          .algorithm = algorithm_of(
              is_plain ? config.dp_gradient.algorithm : AllReduceKind::automatic, is_plain),
          .raw_algorithm = algorithm_of(config.dp_gradient.algorithm, true),
          .rank = tied.rank,
          .seed = static_cast<std::uint64_t>(config.run.seed),
          .lane_bytes = config.dp_gradient.lane_bytes};
}

Problems check_parallel(const RunConfig& config) {
  Problems problems;
  if (config.mesh.dp > 1 || config.mesh.pp > 1)
    append(problems, under("dp.gradient", check(policy_of(config), config.run.master_type(),
                                                static_cast<int>(config.mesh.dp))));
  if (const std::optional<RunConfig> warm = warm_up_of(config))
    append(problems, all_at("local.warmup_codec", check(policy_of(*warm), config.run.master_type(),
                                                        static_cast<int>(config.mesh.dp))));
  const std::int64_t ranks = size(mesh_of(config)), parts = ranks / config.mesh.dp;
  if (parts > 1 && config.dp_gradient.algorithm == AllReduceKind::native)
    problems.push_back(
        {"dp.gradient.algorithm",
         fmt::format("\"native\" sums over all {} ranks, and each of the {} parts of the model has "
                     "{}: use \"auto\"",
                     ranks, parts, config.mesh.dp)});
  if (config.mesh.pp == 1) return problems;
  if (has_ends_apart(config)) check_shared(config, problems);
  return problems;
}

LinkSpec activation_link(const RunConfig& config) {
  const PpActivationSection& a = config.pp_activation;
  LinkSpec link = link_of("pp.activation", a.codec, config);
  // The model makes codes (config/model_family.hpp): they travel as they are, or rounded.
  if (const auto* learned = std::get_if<AutoEncoder>(&link.codec))
    link.codec = learned->values == Dtype::f32 ? CodecSpec(Raw{}) : Half{.kind = learned->values};
  if (a.memory == LinkMemory::delta) link.memory = delta_of(a, a.hash_every);
  if (a.memory == LinkMemory::feedback) link.memory = ErrorFeedback{};
  return link;
}

LinkSpec gradient_link(const RunConfig& config) {
  const PpGradientSection& g = config.pp_gradient;
  LinkSpec link = link_of("pp.gradient", g.codec, config);
  if (g.memory == LinkMemory::delta)
    link.memory = delta_of(g, config.pp_activation.hash_every);
  else if (g.memory == LinkMemory::feedback)
    link.memory = ErrorFeedback{.reset = g.reset ? Reset::step : Reset::never};
  return link;
}

std::vector<bool> encoded_boundaries(Traffic traffic, const RunConfig& config) {
  const std::string& text = traffic == Traffic::pp_activation ? config.pp_activation.boundaries
                                                              : config.pp_gradient.boundaries;
  const std::int64_t boundaries = config.stages() - 1;
  if (!check_places(text, boundaries, kBoundaryWords).empty())
    return std::vector<bool>(static_cast<std::size_t>(boundaries), false);
  return chosen_places(text, boundaries);
}

LinkSpec link_at(const RunConfig& config, Traffic traffic, int boundary) {
  const LinkSpec link =
      traffic == Traffic::pp_activation ? activation_link(config) : gradient_link(config);
  return encoded_boundaries(traffic, config).at(static_cast<std::size_t>(boundary))
             ? link
             : without_codec(link);
}

std::optional<ClassPolicy> class_policy(Traffic traffic, const RunConfig& config,
                                        const SumPlace& place) {
  const bool has_stages = config.mesh.pp > 1, has_replicas = config.mesh.dp > 1,
             has_grid = grid_of(config) != std::array{1, 1, 1};
  switch (traffic) {
    case Traffic::pp_activation: return ClassPolicy{traffic, has_stages, activation_link(config)};
    case Traffic::pp_gradient: return ClassPolicy{traffic, has_stages, gradient_link(config)};
    case Traffic::dp_gradient:
      return ClassPolicy{traffic, has_replicas, policy_of(config, place),
                         static_cast<int>(config.mesh.dp)};
    case Traffic::embedding_tied:
      return ClassPolicy{traffic, has_ends_apart(config), shared_policy_of(config),
                         members_of_shared(config)};
    case Traffic::control:
    case Traffic::preflight:
    case Traffic::embedding_rows: return std::nullopt;
    case Traffic::tp_activation:
      return ClassPolicy{
          traffic, has_grid,
          GridMessages{{parse_codec(config.tp_activation.codec)}, config.run.compute_type()}};
    case Traffic::tp_gradient:
      return ClassPolicy{
          traffic, has_grid,
          GridMessages{{parse_codec(config.tp_gradient.codec)}, config.run.compute_type()}};
    case Traffic::tp_weight:
      return ClassPolicy{traffic, has_grid,
                         GridMessages{{parse_codec(config.tp_weight.codec),
                                       parse_codec(config.tp_weight.gradient)},
                                      config.run.compute_type()}};
  }
  LACONIC_ASSERT(false, fmt::format("traffic class {}", static_cast<int>(traffic)));
  return std::nullopt;
}

std::vector<CodecSpec> lossy_codecs(const ClassPolicy& policy) {
  std::vector<CodecSpec> codecs;
  if (const auto* link = std::get_if<LinkSpec>(&policy.how)) codecs = {link->codec};
  if (const auto* sum = std::get_if<GradientPolicy>(&policy.how)) codecs = {sum->up, sum->down};
  if (const auto* messages = std::get_if<GridMessages>(&policy.how)) codecs = messages->codecs;
  std::erase_if(codecs, [](const CodecSpec& codec) { return !is_lossy(codec); });
  return codecs;
}

bool is_lossy(const ClassPolicy& policy) {
  if (!lossy_codecs(policy).empty()) return true;
  if (const auto* link = std::get_if<LinkSpec>(&policy.how))
    return std::holds_alternative<Delta>(link->memory);
  const auto* sum = std::get_if<GradientPolicy>(&policy.how);
  return sum != nullptr && sum->method == ReduceMethod::power_sgd;
}

bool is_encoded(Traffic traffic, const RunConfig& config, const SumPlace& place) {
  const std::optional<ClassPolicy> policy = class_policy(traffic, config, place);
  return policy && policy->is_used && is_lossy(*policy);
}

Problems check(Traffic traffic, const CodecOverride& codec_override, const RunConfig& config) {
  const std::string section(name_of(traffic));
  const std::optional<ClassPolicy> policy = class_policy(traffic, config);
  if (!policy) return {{section, "has no policy that could be changed"}};
  if (codec_override.is_bypassed || !codec_override.codec) return {};
  if (const auto* link = std::get_if<LinkSpec>(&policy->how))
    return under(section, check_link(*link, *codec_override.codec));
  if (const auto* messages = std::get_if<GridMessages>(&policy->how))
    return under(section, check_messages(*messages, *codec_override.codec));
  return under(section, check(codec_override, std::get<GradientPolicy>(policy->how),
                              config.run.master_type(), policy->members));
}

}  // namespace laconic
