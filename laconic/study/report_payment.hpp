// study/report_payment.hpp — whether encoding was worth it: one method at one rate against what is
// sent whole.
//
// Gains are measured over the steps that count, but bytes and codec times over the whole run: a
// first epoch alone, and a method that bypasses, have no bytes and no codec times.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "laconic/study/report_case.hpp"

namespace laconic {

// The method of each part that encodes nothing.
struct Baseline {
  const char* part;
  const char* method;
};
inline constexpr Baseline kBaselines[] = {{"bandwidth", "fp32"},
                                          {"end-to-end", "nothing"},
                                          {"optimus-cc", "base"},
                                          {"data-parallel", "laconic, raw"}};

struct Payment {
  std::string part, method, rate, baseline;
  bool is_first_epoch = false;
  Spread gain;                     // seconds of the baseline's step / of this one's
  Spread codec_seconds;            // a step, of a mean rank
  Spread saved_bytes;              // a step, of the busiest outlet: raw - wire
  double whole_codec_seconds = 0;  // of the baseline's step, which copies and sums too
  Spread mean_saved_bytes = {};    // a step, of a mean rank
  std::optional<double> saved_step_seconds = {};  // the baseline's step less this one, medians
};
std::vector<Payment> payments_of(const std::vector<Outcome>& outcomes);
bool loses(const Payment& payment);
// Between which neighbouring rates the measured gain of one method crosses 1. Requires: payments of
// one method in the order of rates, without first epochs.
std::string measured_break_even(const std::vector<Payment>& payments);
// Seconds a step that the busiest outlet is free earlier; none where the link has no rate.
std::optional<double> saved_seconds(const Payment& payment);
// The rate of a link, in bit/s, at which the network takes as long for the bytes that are saved as
// the codec for saving them. None when either is not above 0.
std::optional<double> break_even_bits(double saved_bytes, double codec_seconds);
// The same of a mean rank, whose codec must take clearly more time than the baseline's.
std::optional<double> composed_break_even(const Payment& payment);

}  // namespace laconic
