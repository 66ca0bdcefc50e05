#include "laconic/study/report_payment.hpp"

#include <fmt/format.h>

namespace laconic {

namespace {

Spread saved_bytes_of(const Case& one) {
  std::vector<double> values;
  for (const Outcome& outcome : one.rounds) {
    const OutletBytes bytes = busiest_outlet(outcome);
    if (bytes.raw > 0) values.push_back(bytes.raw - bytes.wire);
  }
  return spread_of(values);
}

// What is sent whole is a baseline, whatever else is set; peers have no codec of ours.
bool is_encoded(const Case& one, const std::string& baseline) {
  return one.rounds.front().trial.program == Program::laconic && one.rate != "none" &&
         !one.method.starts_with(baseline);
}

// The least share of a codec's seconds that must remain after the baseline's are subtracted; less
// is noise.
constexpr double kLeastCodecShare = 0.2;

Payment payment_of(const Case& one, const Case* base, const std::string& baseline, Which which) {
  const Spread own = seconds_of(one, which);
  const Spread whole = base ? seconds_of(*base) : Spread{};
  const bool is_first_epoch = which == Which::first_epoch;
  Payment payment{one.part,       one.method,           one.rate, baseline,
                  is_first_epoch, ratio_of(whole, own), {},       {}};
  if (is_known(own) && is_known(whole)) payment.saved_step_seconds = whole.median - own.median;
  if (is_first_epoch || bypasses(one.rounds.front().trial)) return payment;
  payment.codec_seconds = codec_seconds_per_step(one);
  payment.saved_bytes = saved_bytes_of(one);
  payment.mean_saved_bytes = saved_bytes_per_step(one);
  payment.whole_codec_seconds = base ? codec_seconds_per_step(*base).median : 0;
  return payment;
}

}  // namespace

std::vector<Payment> payments_of(const std::vector<Outcome>& outcomes) {
  std::vector<Payment> payments;
  for (const auto& [part, baseline] : kBaselines) {
    const std::vector<Case> cases = cases_of(outcomes, part);
    for (const std::string& rate : rates_of(cases)) {
      const Case* base = find_case(cases, baseline, rate);
      for (const std::string& method : methods_of(cases)) {
        const Case* one = find_case(cases, method, rate);
        if (!one || !is_encoded(*one, baseline)) continue;
        payments.push_back(payment_of(*one, base, baseline, Which::counted));
        if (has_memory(one->rounds.front().trial))
          payments.push_back(payment_of(*one, base, baseline, Which::first_epoch));
      }
    }
  }
  return payments;
}

bool loses(const Payment& payment) {
  return is_known(payment.gain) && payment.gain.median < 1;
}

std::string measured_break_even(const std::vector<Payment>& payments) {
  std::vector<std::string> crossings;
  const Payment* last = nullptr;
  for (const Payment& payment : payments) {
    if (!is_known(payment.gain)) continue;
    if (last && loses(*last) != loses(payment))
      crossings.push_back(fmt::format("between {} and {}", last->rate, payment.rate));
    last = &payment;
  }
  if (!last) return "";
  if (crossings.empty())
    return loses(*last) ? "loses at every rate measured" : "pays at every rate measured";
  return fmt::format("{}", fmt::join(crossings, "; "));
}

std::optional<double> saved_seconds(const Payment& payment) {
  const auto bits = payload_bits(payment.rate);
  if (!bits || !is_known(payment.saved_bytes)) return {};
  return 8 * payment.saved_bytes.median / *bits;
}

std::optional<double> break_even_bits(double saved_bytes, double codec_seconds) {
  if (!(saved_bytes > 0) || !(codec_seconds > 0)) return {};
  const double of_payload = 8 * saved_bytes / codec_seconds;
  // 1 Gbit/s carries so much payload; the same share holds at any rate.
  return of_payload * 1e9 / *payload_bits("1gbit");
}

std::optional<double> composed_break_even(const Payment& payment) {
  if (!is_known(payment.mean_saved_bytes) || !is_known(payment.codec_seconds)) return {};
  const double codec = payment.codec_seconds.median;
  const double more = codec - payment.whole_codec_seconds;
  if (more < kLeastCodecShare * codec) return {};
  return break_even_bits(payment.mean_saved_bytes.median, more);
}

}  // namespace laconic
