#include "laconic/plan/sum_cost.hpp"

#include <algorithm>

#include "laconic/reduce/method.hpp"
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
void add_sum(double elements, const GradientPolicy& policy, int members, const HostDevice& device,
             SumCost& cost) {
  if (elements <= 0) return;
  const double n = members, others = (n - 1) / n, bytes = 4 * elements;
  const double up_bytes = payload_of(policy.up, elements),
               down_bytes = payload_of(policy.down, elements);
  cost.up_bytes += up_bytes;
  cost.down_bytes += down_bytes;
  cost.handled_bytes += others * (up_bytes + down_bytes);
  cost.messages += 2 * (n - 1);
  cost.calls += 1;
  const auto encode_rate = [](const CodecRate& rate, bool has_residual) {
    return has_residual ? rate.feedback : rate.encode;
  };
  if (is_lossy(policy.up)) {
    const CodecRate rate = codec_rate(device, policy.up);
    cost.codec_seconds +=
        over(bytes, encode_rate(rate, has_up_residual(policy))) + over(others * bytes, rate.decode);
  }
  if (is_lossy(policy.down)) {
    const CodecRate rate = codec_rate(device, policy.down);
    cost.codec_seconds += over(bytes / n, encode_rate(rate, has_down_residual(policy))) +
                          over(others * bytes, rate.decode);
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
  GradientPolicy flat = policy, exact = policy;
  flat.up_feedback = flat.down_feedback = false;  // matrices remember, not their factors
  exact.up = exact.down = Raw{};
  add_sum(work.left, flat, members, device, cost);
  add_sum(work.right, flat, members, device, cost);
  add_sum(work.raw, exact, members, device, cost);
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
  add_sum(elements, policy, members, device, cost);
  return cost;
}

double handling_seconds(const SumCost& cost, const HostDevice& device) {
  return over(cost.handled_bytes, device.handled_bytes_per_second) +
         cost.messages * device.message_seconds + cost.calls * device.call_seconds;
}

}  // namespace laconic
