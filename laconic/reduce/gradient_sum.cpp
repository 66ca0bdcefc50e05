#include "laconic/reduce/gradient_sum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <variant>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/device_codec.hpp"
#include "laconic/reduce/method.hpp"

namespace laconic {

namespace {

constexpr std::uint64_t kLeastGrain = 256;

bool is_native(const GradientPolicy& policy) {
  return policy.algorithm == SumAlgorithm::native;
}

// --- check()

// A block's buffer is a row of numbers without shape: codecs that look for rows or columns would
// find chance ones.
void check_flat(const CodecSpec& codec, const std::string& key, Problems& problems) {
  if (std::holds_alternative<LowRank>(codec))
    problems.push_back({key,
                        "low_rank needs matrices, and gradients travel as flat buffers: use "
                        "method = \"power_sgd\", which sees every matrix"});
  if (std::holds_alternative<AutoEncoder>(codec))
    problems.push_back(
        {key,
         "auto_encoder needs maps learned for the columns of a matrix, and gradients "
         "travel as flat buffers: use quantise, top_k or method = \"power_sgd\""});
  if (std::holds_alternative<Transform>(codec))
    problems.push_back(
        {key,
         "transform needs rows of which two ends learn the directions, and gradients "
         "travel as flat buffers: use quantise"});
  const auto* quantise = std::get_if<Quantise>(&codec);
  if (quantise != nullptr && quantise->group != ScaleGroup::block)
    problems.push_back({key, fmt::format("group={} needs matrices, and gradients travel as flat "
                                         "buffers: use group=block",
                                         name_of(quantise->group))});
}

void check_codec(const CodecSpec& codec, const std::string& key, Dtype dtype, Problems& problems) {
  for (const Problem& problem : check(codec))
    problems.push_back({key, fmt::format("{}: {}", problem.where, problem.what)});
  check_flat(codec, key, problems);
  if (const auto* half = std::get_if<Half>(&codec); half != nullptr && half->kind == dtype)
    problems.push_back({key, fmt::format("{} is what the gradients are", name_of(dtype))});
}

void check_codecs(const GradientPolicy& policy, Dtype dtype, Problems& problems) {
  check_codec(policy.up, "codec", dtype, problems);
  if (policy.down != policy.up) check_codec(policy.down, "down", dtype, problems);
  if (passes_sums_on(policy) && is_lossy(policy.down) && policy.down != policy.up)
    problems.push_back({"down", fmt::format("{} would never be used: the sum of {} messages is "
                                            "passed on as it is",
                                            to_text(policy.down), name_of(policy.up))});
}

void check_native(const GradientPolicy& policy, Dtype dtype, Problems& problems) {
  const auto refuse = [&](const std::string& why) { problems.push_back({"algorithm", why}); };
  if (policy.method == ReduceMethod::power_sgd)
    refuse("\"native\" is for method = \"codec\"");
  else if (is_lossy(policy.up) || is_lossy(policy.down))
    refuse(
        "\"native\" sums what it can add, not encoded messages: use \"auto\" or codec = \"raw\"");
  if (dtype != Dtype::f32) refuse(fmt::format("\"native\" sums f32, not {}", name_of(dtype)));
}

void check_algorithm(const GradientPolicy& policy, Dtype dtype, Problems& problems) {
  if (is_native(policy)) return check_native(policy, dtype, problems);
  if (algorithm_of(policy) == Algorithm::direct) return;
  for (const CodecSpec& codec : {policy.up, policy.down})
    if (is_lossy(codec) && !passes_sums_on(policy))
      return problems.push_back(
          {"algorithm",
           fmt::format("\"{}\" passes partial sums on, and {} would lose something "
                       "at every hop: use \"direct\" or \"auto\"",
                       name_in(kSumAlgorithmNames, policy.algorithm), to_text(codec))});
}

void check_power_sgd(const GradientPolicy& policy, Dtype dtype, Problems& problems) {
  const SharedLowRankSpec spec{.rank = policy.rank, .min_ratio = policy.min_ratio};
  for (const Problem& problem : check(spec))
    problems.push_back({problem.where.ends_with("rank") ? "rank" : problem.where, problem.what});
  if (dtype != Dtype::f32)
    problems.push_back({"method", fmt::format("power_sgd works on f32, not {}", name_of(dtype))});
}

}  // namespace

Problems check(const GradientPolicy& policy, Dtype dtype, int members) {
  Problems problems;
  if (members < 1) problems.push_back({"dp", fmt::format("{} members", members)});
  if (dtype != Dtype::f32 && dtype != Dtype::f64)
    problems.push_back({"method", fmt::format("gradients are f32 or f64, not {}", name_of(dtype))});
  if (policy.warm_up_steps < 0)
    problems.push_back({"warmup", fmt::format("{} is negative", policy.warm_up_steps)});
  if (policy.method == ReduceMethod::power_sgd) check_power_sgd(policy, dtype, problems);
  check_codecs(policy, dtype, problems);
  check_algorithm(policy, dtype, problems);
  return problems;
}

GradientPolicy with_codec(GradientPolicy policy, const CodecSpec& codec) {
  if (is_lossy(policy.up)) policy.up = codec;
  if (is_lossy(policy.down)) policy.down = codec;
  return policy;
}

Problems check(const CodecOverride& codec_override, const GradientPolicy& policy, Dtype dtype,
               int members) {
  if (codec_override.is_bypassed || !codec_override.codec) return {};
  const std::string codec = to_text(*codec_override.codec);
  if (!is_lossy(*codec_override.codec))
    return {{"codec", "raw instead of a codec: bypass the class to send it raw"}};
  if (!is_lossy(policy.up) && !is_lossy(policy.down))
    return {{"codec",
             fmt::format("{} instead of raw: messages that lose nothing stay as they are", codec)}};
  const GradientPolicy changed = with_codec(policy, *codec_override.codec);
  Problems problems = check(changed, dtype, members);
  if (problems.empty() && passes_sums_on(changed) != passes_sums_on(policy))
    problems.push_back({"codec", fmt::format("{} instead of {}: sums of the one are passed on as "
                                             "they are and sums of the other are not, so that "
                                             "residuals would lie elsewhere",
                                             codec, to_text(policy.up))});
  return problems;
}

bool sums_on_device(const GradientPolicy& policy, Dtype dtype, int members) {
  return has_device_codecs() && gpus_could_sum(policy, dtype, members);
}

bool gpus_could_sum(const GradientPolicy& policy, Dtype dtype, int members) {
  const TensorSpec part{dtype, {1}};
  const bool is_known = !passes_sums_on(policy) && check_device(policy.up, part).empty() &&
                        check_device(policy.down, part).empty();
  return dtype == Dtype::f32 && (members == 1 || is_known);  // one member encodes nothing
}

std::uint64_t elements_of(const BlockLayout& block) {
  std::uint64_t elements = 0;
  for (const NamedTensor& tensor : block.tensors) elements += elements_of(tensor.tensor);
  return elements;
}

std::unique_ptr<GradientSum> make_gradient_sum(ProgressThread& progress_thread, const Group& group,
                                               const GradientPolicy& policy, Traffic traffic,
                                               const std::vector<BlockLayout>& blocks, Dtype dtype,
                                               bool is_on_device) {
  refuse(check(policy, dtype, static_cast<int>(group.size())));
  LACONIC_ASSERT(!is_on_device || sums_on_device(policy, dtype, static_cast<int>(group.size())),
                 "this sum wants host memory");
  const SumRequest request{.progress_thread = progress_thread,
                           .group = group,
                           .policy = policy,
                           .traffic = traffic,
                           .blocks = blocks,
                           .dtype = dtype,
                           .is_on_device = is_on_device};
  if (group.size() == 1) return make_lone_sum(policy, blocks, dtype, is_on_device);
  if (policy.method == ReduceMethod::power_sgd)
    return make_steered_sum(request, make_power_sgd_sum(request));
  if (is_native(policy)) return make_native_sum(request);
  if (!is_lossy(policy.up) && !is_lossy(policy.down)) return make_codec_sum(request);
  return make_steered_sum(request, make_codec_sum(request));
}

// --- what the methods have in common

bool passes_sums_on(const GradientPolicy& policy) {
  return is_lossy(policy.up) && is_summable(policy.up);
}

bool has_up_residual(const GradientPolicy& policy) {
  return policy.up_feedback && is_lossy(policy.up);
}

bool has_down_residual(const GradientPolicy& policy) {
  return policy.down_feedback && is_lossy(policy.down) && !passes_sums_on(policy);
}

Algorithm algorithm_of(const GradientPolicy& policy) {
  switch (policy.algorithm) {
    case SumAlgorithm::ring: return Algorithm::ring;
    case SumAlgorithm::doubling: return Algorithm::doubling;
    case SumAlgorithm::direct:
    case SumAlgorithm::native: break;
  }
  return Algorithm::direct;
}

namespace {

std::uint64_t group_of_elements(const CodecSpec& codec) {
  if (const auto* quantise = std::get_if<Quantise>(&codec))
    return static_cast<std::uint64_t>(std::max<std::int64_t>(quantise->block, 1));
  if (const auto* sign = std::get_if<Sign>(&codec)) return static_cast<std::uint64_t>(sign->block);
  return 1;
}

std::uint64_t grain_of(const GradientPolicy& policy) {
  const std::uint64_t both = std::lcm(group_of_elements(policy.up), group_of_elements(policy.down));
  return both * ((kLeastGrain + both - 1) / both);
}

}  // namespace

std::vector<std::uint64_t> offsets_of(const GradientPolicy& policy, std::uint64_t elements,
                                      int members) {
  const int chunks = chunks_of(CollectiveKind::all_reduce, algorithm_of(policy), members);
  return cut(elements, chunks, grain_of(policy));
}

CodecPair codecs_of(const GradientPolicy& policy) {
  return {policy.up, passes_sums_on(policy) ? CodecSpec{Raw{}} : policy.down};
}

CollectiveSpec collective_of(const Group& group, const GradientPolicy& policy, Traffic traffic,
                             std::uint32_t unit, std::uint64_t elements, Dtype dtype) {
  CollectiveSpec spec;
  spec.traffic = traffic;
  spec.unit = unit;
  spec.algorithm = algorithm_of(policy);
  spec.group = group;
  spec.dtype = dtype;
  spec.offsets = offsets_of(policy, elements, static_cast<int>(group.size()));
  spec.lane_elements = policy.lane_bytes / bytes_of(dtype) * (spec.offsets.size() - 1);
  const CodecPair codecs = codecs_of(policy);
  spec.up = codecs.up;
  spec.down = codecs.down;
  spec.up_feedback = has_up_residual(policy);
  spec.down_feedback = has_down_residual(policy);
  const Key key = derive(key_of(policy.seed), unit);  // blocks draw apart
  spec.seed = std::uint64_t{key.hi} << 32 | key.lo;
  return spec;
}

CollectiveSpec collective_of(const SumRequest& request, std::uint32_t unit,
                             std::uint64_t elements) {
  CollectiveSpec spec =
      collective_of(request.group, request.policy, request.traffic, unit, elements, request.dtype);
  spec.is_on_device = request.is_on_device;
  return spec;
}

}  // namespace laconic
