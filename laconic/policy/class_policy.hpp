// policy/class_policy.hpp — how each class of messages is encoded, by the configuration: one table.
// Pure.
//
// A class with a policy goes over links between stages, through sums over ranks, or between the
// ranks of a tensor grid. class_policy() has a row for every class, so that a new one cannot be
// forgotten: the compiler counts the cases.
#pragma once

#include <array>
#include <optional>
#include <variant>
#include <vector>

#include "laconic/base/dtype.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/link/codec_override.hpp"
#include "laconic/link/link_spec.hpp"
#include "laconic/mesh/mesh.hpp"
#include "laconic/reduce/gradient_sum.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

// Which ranks of a pipeline a sum over replicas is asked for: those at place `pp`, when the first
// `encoded` ranks encode (dp.gradient.stages).
struct SumPlace {
  int pp = 0;
  int encoded = 1;
};

// Messages of a tensor grid (policy/grid_policy.hpp has their layers and memory).
struct GridMessages {
  std::vector<CodecSpec> codecs;  // of weights and of their gradients there are two
  Dtype dtype = Dtype::f32;
};

struct ClassPolicy {
  Traffic traffic = Traffic::control;
  bool is_used = false;  // on this mesh there are such messages
  std::variant<LinkSpec, GradientPolicy, GridMessages> how;
  int members = 2;  // of a sum
};
// Nothing, where a class has no policy. Without a place: of ranks that encode.
std::optional<ClassPolicy> class_policy(Traffic traffic, const RunConfig& config,
                                        const SumPlace& place = {});
// The classes that have one, in the order in which people are told of them.
inline constexpr std::array kClassesWithPolicy = {
    Traffic::pp_activation, Traffic::pp_gradient, Traffic::dp_gradient, Traffic::embedding_tied,
    Traffic::tp_activation, Traffic::tp_gradient, Traffic::tp_weight};

// Whether there are messages of the class on this mesh that lose something, at that place.
bool is_encoded(Traffic traffic, const RunConfig& config, const SumPlace& place);
// Whether messages of the class lose anything.
bool is_lossy(const ClassPolicy& policy);
// The codecs that do.
std::vector<CodecSpec> lossy_codecs(const ClassPolicy& policy);
// Every reason why the class cannot be overridden so, by key of the configuration.
Problems check(Traffic traffic, const CodecOverride& codec_override, const RunConfig& config);

// Messages between stages (pp.activation, pp.gradient).
LinkSpec activation_link(const RunConfig& config);
LinkSpec gradient_link(const RunConfig& config);
// By boundary: whether its messages of this class are such, or raw and not remembered
// (pp.activation.boundaries, pp.gradient.boundaries). None where the text names others than there
// are, which check() reports.
std::vector<bool> encoded_boundaries(Traffic traffic, const RunConfig& config);
// What messages of the class undergo at a boundary. Requires: there is such a boundary.
LinkSpec link_at(const RunConfig& config, Traffic traffic, int boundary);

// How large buffers of sums are cut, which all ranks must do alike. A lane costs a GPU a dozen
// calls whatever its size, so that there they are thirty times as large as links like them.
void choose_lanes(bool are_all_on_gpus, RunConfig& config);

// Sums of ranks that encode (dp.gradient).
GradientPolicy policy_of(const RunConfig& config);
// Those at a place: the same, or exact sums without any memory.
GradientPolicy policy_of(const RunConfig& config, const SumPlace& place);
// The configuration with the gradients that linear local updates sum in their warm-up by
// local.warmup_codec; nothing where that is empty, and they travel as all others.
std::optional<RunConfig> warm_up_of(const RunConfig& config);
// How many ranks encode, by dp.gradient.stages. Requires: `automatic` has a value if that is
// "auto".
int encoded_ranks(const RunConfig& config, std::optional<int> automatic);

// Sums of parameters that several stages share (embedding.tied), with both residuals if they lose
// anything. Exact in the steps of dp.gradient.warmup; plain sums go by dp.gradient.algorithm.
GradientPolicy shared_policy_of(const RunConfig& config);

// Everything about sums that is known to be impossible before a model is there. Requires:
// check(config) is empty.
Problems check_parallel(const RunConfig& config);

}  // namespace laconic
