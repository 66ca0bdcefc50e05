// Does it pay? Bytes saved, seconds spent on saving them, and what came of it.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "laconic/study/report_figure.hpp"
#include "laconic/study/report_pages.hpp"

namespace laconic {

namespace {

std::string rate_of_bits(double bits) {
  return bits >= 1e9 ? fmt::format("{:.3g} Gbit/s", bits / 1e9)
                     : fmt::format("{:.3g} Mbit/s", bits / 1e6);
}

std::string title_of(const Payment& payment) {
  return payment.is_first_epoch ? payment.method + ", first epoch" : payment.method;
}

// Whether rounds of both sides lie on either side of 1.
bool is_within_spread(const Payment& payment) {
  return payment.gain.least <= 1 && payment.gain.most >= 1;
}

constexpr double kSmallGain = 1.05;

// A gain of a single round has nothing to show that it is one, unless it is large. A loss stays a
// loss.
std::string verdict_of(const Payment& payment) {
  if (!is_known(payment.gain)) return "–";
  const bool is_near = payment.gain.rounds > 1 && is_within_spread(payment);
  if (loses(payment)) return is_near ? "**loses**, within the spread" : "**loses**";
  if (payment.gain.rounds == 1 && payment.gain.median < kSmallGain) return "no difference seen";
  return is_near ? "pays, within the spread" : "pays";
}

// A loss must not be rounded away.
int gain_digits(const Payment& payment) {
  return payment.gain.median < 1 && payment.gain.median > 0.99 ? 4 : 2;
}

std::string sentence_of(const Payment& payment, const std::string& title) {
  return fmt::format("{} **{}x**{}", title, number_text(payment.gain.median, gain_digits(payment)),
                     is_within_spread(payment) ? " (within the spread)" : "");
}

// What was compared at one rate in one part, and what of it lost.
struct RateLosses {
  std::string part, rate;
  std::size_t compared = 0;  // methods; first epochs are not counted
  bool has_gain = false;     // one of these gains 5 %
  std::vector<Payment> lost = {};
  std::vector<Payment> lost_first_epochs = {};
};

std::vector<RateLosses> losses_by_rate(const std::vector<Payment>& payments) {
  std::vector<RateLosses> all;
  for (const Payment& payment : payments) {
    if (!is_known(payment.gain)) continue;
    if (all.empty() || all.back().part != payment.part || all.back().rate != payment.rate) {
      all.push_back({.part = payment.part, .rate = payment.rate});
    }
    RateLosses& at = all.back();
    if (!payment.is_first_epoch) {
      ++at.compared;
      at.has_gain = at.has_gain || payment.gain.median >= kSmallGain;
    }
    if (loses(payment))
      (payment.is_first_epoch ? at.lost_first_epochs : at.lost).push_back(payment);
  }
  return all;
}

// How many lost, then these lines.
std::string statement(const std::vector<RateLosses>& all, const std::string& lines) {
  std::size_t compared = 0, lost = 0, first_epochs = 0;
  for (const RateLosses& at : all) {
    compared += at.compared;
    lost += at.lost.size();
    first_epochs += at.lost_first_epochs.size();
  }
  if (compared == 0) {
    return "Nothing can be said of where compression does not help: no method was measured beside "
           "what is sent whole.\n\n";
  }
  if (lost == 0 && first_epochs == 0) {
    const std::string many =
        fmt::format("None of the {} cases that were measured, methods at rates, lost", compared);
    return fmt::format("{} against sending everything whole.\n\n{}{}",
                       compared == 1 ? "The one case that was measured did not lose" : many, lines,
                       lines.empty() ? "" : "\n");
  }
  const std::string epochs =
      with_count(static_cast<std::int64_t>(first_epochs), "first epoch", "first epochs");
  const std::string more = first_epochs == 0 ? "" : ", and in " + epochs;
  return fmt::format(
      "**Encoding made steps longer in {} of {} measured cases**, methods at rates{}, against "
      "sending everything whole at the same rate:\n\n{}\n",
      lost, compared, more, lines);
}

// Requires: not empty.
std::string worst_of(const std::vector<Payment>& lost) {
  const Payment& worst = *std::min_element(
      lost.begin(), lost.end(),
      [](const Payment& a, const Payment& b) { return a.gain.median < b.gain.median; });
  return sentence_of(worst, fmt::format("{} at {}", title_of(worst), worst.rate));
}

// What there is to say against encoding in one part, over all its rates; empty: nothing.
std::string part_line(const std::vector<RateLosses>& all, const std::string& part) {
  std::size_t compared = 0;
  std::vector<std::string> gainless, statements;
  std::vector<Payment> lost, first_epochs;
  for (const RateLosses& at : all) {
    if (at.part != part) continue;
    compared += at.compared;
    if (at.compared > 0 && !at.has_gain) gainless.push_back(at.rate);
    lost.insert(lost.end(), at.lost.begin(), at.lost.end());
    first_epochs.insert(first_epochs.end(), at.lost_first_epochs.begin(),
                        at.lost_first_epochs.end());
  }
  if (!gainless.empty())
    statements.push_back(fmt::format("nothing gains 5 % at {}", fmt::join(gainless, ", ")));
  if (!lost.empty())
    statements.push_back(fmt::format(
        "{} of {} lost, at worst {}", lost.size(),
        with_count(static_cast<std::int64_t>(compared), "case", "cases"), worst_of(lost)));
  if (!first_epochs.empty())
    statements.push_back(fmt::format("of first epochs {} lost, at worst {}", first_epochs.size(),
                                     worst_of(first_epochs)));
  if (statements.empty()) return "";
  return fmt::format("- {}: {}\n", part, fmt::join(statements, "; "));
}

std::vector<std::string> row_of(const Payment& payment) {
  const auto saved = saved_seconds(payment), step = payment.saved_step_seconds;
  const auto even = composed_break_even(payment);
  const std::string gain = text(payment.gain, gain_digits(payment), "x");
  return {payment.rate,
          title_of(payment),
          step ? fmt::format("{:+.1f}", 1e3 * *step) : "–",
          saved ? fmt::format("{:.1f}", 1e3 * *saved) : "–",
          text(scaled(payment.codec_seconds, 1e3), 1),
          is_known(payment.gain) && loses(payment) ? "**" + gain + "**" : gain,
          even ? rate_of_bits(*even) : "–",
          verdict_of(payment)};
}

// Tabulates every method of one part.
std::string break_even_table(const std::vector<Payment>& payments) {
  std::vector<std::pair<std::string, std::vector<Payment>>> methods;
  for (const Payment& payment : payments) {
    if (payment.is_first_epoch) continue;
    auto same = std::find_if(methods.begin(), methods.end(),
                             [&](const auto& method) { return method.first == payment.method; });
    if (same == methods.end()) same = methods.insert(same, {payment.method, {}});
    same->second.push_back(payment);
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, of_method] : methods) {
    const std::string even = measured_break_even(of_method);
    if (!even.empty()) rows.push_back({name, even});
  }
  if (rows.empty()) return "";
  return markdown_table({{"", Align::left}, {"break-even (measured)", Align::left}}, rows);
}

std::string table_of(const std::vector<Payment>& payments) {
  std::vector<std::vector<std::string>> rows;
  for (const Payment& payment : payments) rows.push_back(row_of(payment));
  return markdown_table({{"rate", Align::left},
                         {"", Align::left},
                         {"step ms saved (measured)"},
                         {"network ms saved (composed)"},
                         {"codec ms a step (measured)"},
                         {"gain (measured)"},
                         {"break-even link (composed)"},
                         {"", Align::left}},
                        rows);
}

}  // namespace

std::string losing_sentences(const Outcomes& outcomes) {
  const std::vector<RateLosses> all = losses_by_rate(payments_of(outcomes));
  std::string lines;
  for (const RateLosses& at : all) {
    std::vector<std::string> cases;
    for (const auto* lost : {&at.lost, &at.lost_first_epochs})
      for (const Payment& payment : *lost) cases.push_back(sentence_of(payment, title_of(payment)));
    if (!cases.empty())
      lines += fmt::format("- {}, {}: {}\n", at.part, at.rate, fmt::join(cases, "; "));
  }
  return statement(all, lines);
}

std::string losing_summary(const Outcomes& outcomes) {
  const std::vector<RateLosses> all = losses_by_rate(payments_of(outcomes));
  std::string lines;
  for (const Baseline& baseline : kBaselines) lines += part_line(all, baseline.part);
  return statement(all, lines);
}

Figure gain_figure(const Outcomes& outcomes) {
  const std::vector<Case> cases = cases_of(outcomes, "bandwidth");
  std::vector<std::string> methods = methods_of(cases);
  std::erase(methods, "fp32");
  methods = curves_to_draw(methods, {"DirectQ, 3 and 6 bits"});
  Figure figure = figure_over_rates(cases, methods, [&](const Case& one) {
    const Case* base = find_case(cases, "fp32", one.rate);
    return base ? ratio_of(seconds_of(*base), seconds_of(one)) : Spread{};
  });
  figure.name = "gain";
  figure.title = "Speed against fp32 at the same rate (measured); below the dashed line it loses";
  figure.y_label = "times as fast as fp32";
  figure.has_line_at_one = true;
  return figure;
}

std::string pays_page(const Outcomes& outcomes, const Drawn& drawn) {
  std::vector<std::string> parts;
  for (const Baseline& baseline : kBaselines) parts.emplace_back(baseline.part);
  std::string page = "# Does it pay?\n\n" + setting_text(outcomes, parts) + how_to_read();
  page +=
      "- **Step time saved** (measured): the step of what is sent whole less this one, same rate.\n"
      "- **Network time saved** (composed): raw bytes less wire bytes of the busiest host's "
      "outlet, "
      "over the payload that a link of the rate carries (1448 of 1514 bytes). Totals are of all "
      "ranks, so a host's share follows from its place: activations leave every stage but the "
      "last, "
      "gradients every stage but the first, the shared embedding's gradient both ends; sums "
      "between "
      "replicas load all alike. A mean over the run, first epoch included. It is what the outlet "
      "no longer sends, not what the step must become shorter by: computing may hide it.\n"
      "- **Codec time** (measured): encoding and decoding of a rank in a step, mean over ranks and "
      "run.\n"
      "- **Gain** (measured): step time of what is sent whole over step time of this, same rate.\n"
      "- **Break-even** (composed): the link at which the bytes that a mean rank saves, all ranks' "
      "over their number, take as long as its codec does, less what the codec of the baseline "
      "takes; both are means over the run. On faster links the codec takes longer than the bytes "
      "would. A dash where less than 20 % of the codec's time is left after that: it would be "
      "noise over noise. Below each table (measured): the neighbouring rates between which the "
      "gain crosses 1.\n"
      "- **Methods that bypass** have dashes for network time, codec time and break-even: their "
      "totals are of the whole run, and so of the steps before they decided, while their step "
      "times are of those after.\n"
      "- **Verdicts**: \"within the spread\" where rounds of the two lie among each other. A gain "
      "of "
      "less than 5 % in a single round, which has no spread, is \"no difference seen\".\n\n";
  page += "## Where it does not help\n\n" + losing_sentences(outcomes);
  page += figure_text(drawn, "gain", "Speed against fp32 at the same rate");
  const std::vector<Payment> payments = payments_of(outcomes);
  for (const auto& [part, baseline] : kBaselines) {
    page += fmt::format("## {}, against \"{}\"\n\n", part, baseline);
    std::vector<Payment> of_part;
    std::copy_if(payments.begin(), payments.end(), std::back_inserter(of_part),
                 [&, name = part](const Payment& payment) { return payment.part == name; });
    page += of_part.empty() ? not_measured(outcomes, part)
                            : table_of(of_part) + break_even_table(of_part);
  }
  return page;
}

}  // namespace laconic
