#include "laconic/plan/pipeline_limit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "laconic/base/quantity.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

namespace {

// 4 bits with a scale of 2 bytes for 64 numbers, and 6 bits with one of 4 for 128.
constexpr double kBytesOfANumber = 4 / 8.0 + 2 / 64.0 + 6 / 8.0 + 4 / 128.0;
constexpr double kFew = 0.25;
// Forward, and backward to inputs and to weights.
constexpr double kMultiplyAddsOfAParameter = 3;

double width_of(const Family& family) {
  return std::visit([](const auto& shape) { return static_cast<double>(shape.width); }, family);
}

}  // namespace

PipelineLimit pipeline_limit(const PlanSpace& space) {
  double computed = 0, bits = std::numeric_limits<double>::infinity();
  for (const HostGroup& group : space.hosts.groups) {
    computed += group.ranks() * multiply_adds_of(group, space.base.run.precision);
    bits = std::min(bits, group.card.bits_per_second);
  }
  PipelineLimit limit;
  limit.tokens_per_second =
      computed / (kMultiplyAddsOfAParameter * static_cast<double>(parameter_count(space.spec)));
  limit.carried_bytes = bits / 8 / limit.tokens_per_second;
  limit.needed_bytes = kBytesOfANumber * width_of(space.family);
  return limit;
}

std::string pipeline_warning(const PlanSpace& space) {
  const bool has_gpus = std::all_of(space.hosts.groups.begin(), space.hosts.groups.end(),
                                    [](const HostGroup& group) { return group.device.is_gpu; });
  const PipelineLimit limit = pipeline_limit(space);
  if (!has_gpus || host_count(space.hosts) < 2 || !(limit.share() < kFew)) return "";
  return fmt::format(
      "\nNo pipeline keeps both speed and loss here: these GPUs compute {} tokens/s, of which the "
      "slowest card carries {:.3g} bytes each,\nand no messages between stages shorter than {:.4g} "
      "bytes a token are known to keep the loss (4 bits forward, 6 back): {:.2g} % of the speed.\n"
      "Where the model fits on one host, replicas with local updates send far less.\n",
      with_commas(static_cast<std::int64_t>(limit.tokens_per_second)), limit.carried_bytes,
      limit.needed_bytes, 100 * limit.share());
}

}  // namespace laconic
