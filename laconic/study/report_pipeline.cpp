// Parts "end-to-end" and "optimus-cc": pipelines whose stages are replicated.
#include <fmt/format.h>

#include "laconic/study/report_pages.hpp"

namespace laconic {

namespace {

std::vector<std::string> step_row(const std::vector<Case>& cases, const Case& one, Which which,
                                  const Case* base) {
  const bool is_first = which == Which::first_epoch;
  const std::string title = is_first ? one.method + ", first epoch" : one.method;
  return {one.rate,
          title,
          text(scaled(seconds_of(one, which), 1e3), 0),
          text(samples_per_second(one, which)),
          base ? text(ratio_of(seconds_of(*base), seconds_of(one, which)), 2, "x") : "–",
          text(scaled(exposed_share(one, which), 100), 0),
          is_first ? "–" : communication_text(cases, one),
          is_first ? "–" : text(scaled(wire_bytes_per_step(one), 1e-6))};
}

std::string step_table(const std::vector<Case>& cases, const std::string& base) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& rate : rates_of(cases)) {
    for (const std::string& method : methods_of(cases)) {
      const Case* one = find_case(cases, method, rate);
      if (!one) {
        rows.push_back({rate, method, "not measured", "", "", "", "", ""});
        continue;
      }
      const Case* other = find_case(cases, base, rate);
      rows.push_back(step_row(cases, *one, Which::counted, other));
      if (has_memory(one->rounds.front().trial)) {
        rows.push_back(step_row(cases, *one, Which::first_epoch, other));
      }
    }
  }
  return markdown_table({{"rate", Align::left},
                         {"", Align::left},
                         {"step ms"},
                         {"samples/s"},
                         {fmt::format("against \"{}\"", base)},
                         {"exposed, % of the step"},
                         {"communication, % of the step (composed)"},
                         {"MB a step, all ranks"}},
                        rows);
}

std::string without_base(const std::vector<Case>& cases, const std::string& base) {
  for (const Case& one : cases) {
    if (one.method == base) return "";
  }
  return fmt::format("\"{}\" was not measured, so there is nothing to compare with.\n\n", base);
}

constexpr const char* kBytesNote =
    "Bytes are means over the whole run, the first epoch included; exposed is how long rank 0 "
    "waits for other ranks and the network, the bubble included. ";

}  // namespace

std::string end_to_end_page(const Outcomes& outcomes) {
  const std::vector<Case> cases = cases_of(outcomes, "end-to-end");
  std::string page = "# End to end: activations and gradients encoded\n\n";
  if (cases.empty()) return page + not_measured(outcomes, "end-to-end");
  page +=
      "Four stages, two replicas of each, eight hosts: \"activations only\" encodes what stages "
      "send each other, \"gradients only\" what replicas do. Numbers are measured, unless they are "
      "called composed.\n\n" +
      setting_text(outcomes, {"end-to-end"}) + how_to_read() + kBytesNote + communication_note();
  return page + without_base(cases, "nothing") + step_table(cases, "nothing");
}

std::string optimus_page(const Outcomes& outcomes) {
  const std::vector<Case> cases = cases_of(outcomes, "optimus-cc");
  const std::vector<Case> losses = cases_of(outcomes, "optimus-cc loss");
  std::string page = "# Optimus-CC, one measure after the other\n\n";
  page +=
      "CB: low-rank gradients between stages. LEP: what a message lost goes into the next. FE: "
      "one sum for the embedding that the first and the last stage share. SC: low-rank sums "
      "between replicas, on some stages. \"CB + LEP + FE + SC\" is what was published; "
      "\"optimus-cc\" is the preset of that name, which also sends the factors of these sums and "
      "the embedding's gradient in 8 bits. \"critical\": those gradients are encoded that the "
      "step's length depends on. Numbers are measured, unless they are called composed.\n\n" +
      setting_text(outcomes, {"optimus-cc", "optimus-cc loss"}) + how_to_read();
  page += "## Step time\n\n";
  page += cases.empty() ? not_measured(outcomes, "optimus-cc")
                        : kBytesNote + communication_note() + without_base(cases, "base") +
                              step_table(cases, "base");
  page += "## Loss\n\n";
  if (losses.empty()) return page + not_measured(outcomes, "optimus-cc loss");
  const std::size_t steps = common_steps(losses);
  const auto loss_of_base = [&]() -> Spread {
    for (const Case& one : losses) {
      if (one.method == "base") return final_loss(one, steps);
    }
    return {};
  }();
  page += fmt::format("At {}. Mean of the last five losses, after {} steps of one seed:\n\n",
                      losses.front().rate, steps);
  std::vector<std::vector<std::string>> rows;
  for (const Case& one : losses) {
    const Spread loss = final_loss(one, steps);
    const Spread ratio = ratio_of(loss, loss_of_base);
    rows.push_back({one.method, is_known(loss) ? text(loss, 4) : "diverged",
                    is_known(ratio) ? fmt::format("{:+.2f} %", 100 * (ratio.median - 1)) : "–"});
  }
  return page + markdown_table({{"", Align::left}, {"loss"}, {"against base"}}, rows);
}

}  // namespace laconic
