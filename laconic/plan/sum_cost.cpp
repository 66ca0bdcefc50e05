#include "laconic/plan/sum_cost.hpp"

#include <algorithm>

#include "laconic/simulate/rank_work.hpp"

namespace laconic {

namespace {

double over(double amount, double rate) {
  return rate > 0 ? amount / rate : 0;
}

double payload_of(const CodecSpec& codec, double elements) {
  const auto count = static_cast<std::int64_t>(elements);
  if (count == 0) return 0;
  return static_cast<double>(max_payload_bytes(codec, {.dtype = Dtype::f32, .shape = {count}}));
}

// A sum of so many elements: everybody encodes what it has, decodes the contributions to its own
// chunk, encodes their sum, and decodes all others'.
void add_sum(double elements, const CodecSpec& up, const CodecSpec& down, int members,
             const HostDevice& device, SumCost& cost) {
  if (elements <= 0) return;
  const double n = members, others = (n - 1) / n, bytes = 4 * elements;
  const double up_bytes = payload_of(up, elements), down_bytes = payload_of(down, elements);
  cost.up_bytes += up_bytes;
  cost.down_bytes += down_bytes;
  cost.handled_bytes += others * (up_bytes + down_bytes);
  cost.messages += 2 * (n - 1);
  cost.calls += 1;
  if (is_lossy(up)) {
    const CodecRate rate = codec_rate(device, name_of(up));
    cost.codec_seconds += over(bytes, rate.encode) + over(others * bytes, rate.decode);
  }
  if (is_lossy(down)) {
    const CodecRate rate = codec_rate(device, name_of(down));
    cost.codec_seconds += over(bytes / n, rate.encode) + over(others * bytes, rate.decode);
  }
}

// Factors of matrices in two sums, the second of which waits for the first; the rest exactly.
void add_power_sgd(const std::vector<SummedPart>& parts, const GradientPolicy& policy, int members,
                   const HostDevice& device, SumCost& cost) {
  const SharedLowRankSpec spec{.rank = policy.rank, .min_ratio = policy.min_ratio};
  FactorWork work;
  for (const SummedPart& part : parts) {
    const ParameterSpec& p = *part.parameter;
    add_factors(spec, {.dtype = Dtype::f32, .shape = p.sizes},
                part.elements / static_cast<double>(elements_of(p)), work);
  }
  cost.codec_seconds += factor_seconds(work, policy.up_feedback, device).total();
  add_sum(work.left, policy.up, policy.down, members, device, cost);
  add_sum(work.right, policy.up, policy.down, members, device, cost);
  add_sum(work.raw, Raw{}, Raw{}, members, device, cost);
}

}  // namespace

SumCost& SumCost::operator+=(const SumCost& more) {
  up_bytes += more.up_bytes;
  down_bytes += more.down_bytes;
  codec_seconds += more.codec_seconds;
  handled_bytes += more.handled_bytes;
  messages += more.messages;
  calls += more.calls;
  return *this;
}

SumCost sum_cost(const std::vector<SummedPart>& parts, const GradientPolicy& policy, int members,
                 const HostDevice& device) {
  SumCost cost;
  if (members < 2) return cost;
  if (policy.method == ReduceMethod::power_sgd) {
    add_power_sgd(parts, policy, members, device, cost);
    return cost;
  }
  double elements = 0;
  for (const SummedPart& part : parts) elements += part.elements;
  add_sum(elements, policy.up, policy.down, members, device, cost);
  return cost;
}

double handling_seconds(const SumCost& cost, const HostDevice& device) {
  return over(cost.handled_bytes, device.handled_bytes_per_second) +
         cost.messages * device.message_seconds + cost.calls * device.call_seconds;
}

}  // namespace laconic
