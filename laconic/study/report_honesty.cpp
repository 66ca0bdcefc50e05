// Part "honesty": our own numbers against numbers that others have.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "laconic/base/error.hpp"
#include "laconic/schedule/check.hpp"
#include "laconic/schedule/estimate.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/study/report_pages.hpp"

namespace laconic {

namespace {

// Ethernet 14, IPv4 20, TCP 20 and 12 of time stamps: also in an acknowledgement.
constexpr double kHeader = 66;
constexpr double kPayload = 1448;
constexpr double kLatency = 70e-6;           // of a small message between two hosts of a lab
constexpr double kForwardShare = 1.0 / 3.0;  // of computing: backward takes twice as long

bool is_within(double value, double limit) {
  return std::abs(value) <= limit;
}

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:+.1f} %", 100 * share) : "–";
}

double bytes_of(const Outcome& outcome, const std::string& traffic) {
  double bytes = 0;
  for (const ClassTotal& total : outcome.traffic) {
    if (total.traffic == traffic) bytes += total.wire_bytes;
  }
  return bytes;
}

std::optional<ScheduleKind> kind_of(const Outcome& outcome) {
  try {
    const auto set = setting_of(outcome, "pipeline.schedule");
    if (set) return parse_schedule_kind(*set);
    return outcome.trial.part == "honesty" ? parse_schedule_kind(outcome.trial.method)
                                           : ScheduleKind::one_f_one_b;
  } catch (const ConfigError&) {
    return {};
  }
}

// Encoding and decoding between stages, of a microbatch in one stage: only known as a mean of
// ranks.
double stage_codec_seconds(const Outcome& outcome, const PipelineShape& pipeline, int chunks) {
  double seconds = 0;
  for (const ClassTotal& total : outcome.traffic) {
    if (total.traffic == "pp.activation" || total.traffic == "pp.gradient")
      seconds += total.codec_seconds;
  }
  return seconds / static_cast<double>(outcome.steps.size()) / pipeline.microbatches / chunks;
}

// Times of a run are of one stage, a rank's several taken as one; ranks count along dp first.
// Half of the codec's time is taken as forward's, half as backward's, which receive and send alike.
Costs costs_of(const Outcome& outcome, const RunShape& shape, const Schedule& schedule) {
  const PipelineShape& pipeline = schedule.shape;
  const auto bits = payload_bits(outcome.trial.rate);
  const double steps = static_cast<double>(outcome.steps.size());
  const auto seconds = [&](const char* traffic, double count) {
    return bits && count > 0 ? 8 * bytes_of(outcome, traffic) / count / *bits : 0.0;
  };
  int edges = 0;
  for (int edge = 0; edge < edge_count(pipeline); ++edge) edges += crosses_ranks(schedule, edge);
  const double messages = steps * pipeline.microbatches * edges * shape.dp;
  const double codec = stage_codec_seconds(outcome, pipeline, shape.chunks) / 2;
  Costs costs;
  costs.wiring = Wiring::switched;
  costs.latency = kLatency;
  for (int stage = 0; stage < pipeline.stages; ++stage) {
    const auto rank = static_cast<std::size_t>(rank_of_stage(schedule, stage) * shape.dp);
    const double computing = outcome.computing_seconds[rank];
    const double backward = (1 - kForwardShare) * computing;
    costs.stages.push_back({kForwardShare * computing + codec, backward + codec,
                            backward / 2 + codec, backward / 2, 0});
  }
  costs.edges = {{seconds("pp.activation", messages), seconds("pp.gradient", messages), 0}};
  // The first and the last stage each send the embedding's gradient once, when all is done.
  costs.step = seconds("embedding.tied", 2 * steps * shape.dp);
  return costs;
}

std::string meter_section(const Outcomes& outcomes) {
  std::string page =
      "## The byte meter against the kernel's counters (measured)\n\nEvery run of Laconic in a "
      "lab: "
      "wire bytes of all traffic classes and ranks by the program's own meter, against what the "
      "hosts' `eth0` sent. A packet has 66 bytes of headers (Ethernet 14, IPv4 20, TCP with time "
      "stamps 32), acknowledgements are nothing else; so 66 bytes for each packet that the kernel "
      "counted are taken off first. \"Full packets\" is what the meter's bytes would be in packets "
      "of 1448, without acknowledgements. The interface also carries what the meter does not "
      "count: "
      "meeting, and name resolution of neighbours.\n\n";
  const std::vector<MeterCheck> checks = meter_checks(outcomes);
  if (checks.empty())
    return page + "No run of Laconic in a lab has ended well, so there is nothing to compare.\n\n";
  const auto within = std::count_if(checks.begin(), checks.end(), [](const MeterCheck& check) {
    return is_within(difference(check), kMeterTolerance);
  });
  page += fmt::format("**{} of {} runs {} within 3 %** after headers.\n\n", within, checks.size(),
                      within == 1 ? "is" : "are");
  std::vector<std::vector<std::string>> rows;
  for (const MeterCheck& check : checks) {
    const double apart = difference(check);
    const std::string shown = percent(apart);
    rows.push_back({check.part, check.rate, check.method, fmt::format("{}", check.round),
                    fmt::format("{:.3f}", check.meter / 1e6),
                    fmt::format("{:.3f}", check.interface / 1e6),
                    number_text(check.interface / check.meter, 4),
                    fmt::format("{:.3f}", expected_interface_bytes(check.meter) / 1e6),
                    fmt::format("{:.3f}", check.headers / 1e6),
                    is_within(apart, kMeterTolerance) ? shown : "**" + shown + "**"});
  }
  return page + markdown_table({{"part", Align::left},
                                {"rate", Align::left},
                                {"", Align::left},
                                {"round"},
                                {"meter MB"},
                                {"interface MB"},
                                {"interface / meter"},
                                {"in full packets MB"},
                                {"headers MB"},
                                {"apart after headers"}},
                               rows);
}

std::string estimate_section(const Outcomes& outcomes) {
  std::string page = fmt::format(
      "## Predicted and measured step time\n\nPredicted by the walk of `laconic schedule` with "
      "wiring "
      "\"switched\": each rank's computing as the same run measured it, a third of it forward and "
      "two thirds backward; to each of the two half of what a rank spends on encoding and "
      "decoding between stages, mean over ranks; messages by their bytes at 1448 / 1514 of the "
      "link's rate, and {:.0f} us of latency; at the end the shared embedding's gradient. Left "
      "out: the update, and that ranks compete for processors at some times more than at others. "
      "Unshaped links cost only latency. Computing, encoding and bytes are means over the whole "
      "run, its first step included; measured step times are medians of the steps that count. "
      "Methods whose links remember samples are therefore left out, since the bytes of their first "
      "epoch differ, and so are methods that bypass.\n\n",
      1e6 * kLatency);
  const std::vector<Prediction> predictions = predictions_of(outcomes);
  if (predictions.empty())
    return page + "No run has what a prediction needs, so there is nothing to compare.\n\n";
  std::vector<std::vector<std::string>> rows;
  for (const Prediction& one : predictions) {
    const double error = error_of(one);
    const std::string shown = percent(error);
    rows.push_back({one.part, one.rate, one.method, text(scaled(one.measured, 1e3), 0),
                    text(scaled(one.predicted, 1e3), 0),
                    is_within(error, kEstimateTolerance) ? shown : "**" + shown + "**"});
  }
  return page + markdown_table({{"part", Align::left},
                                {"rate", Align::left},
                                {"", Align::left},
                                {"measured ms"},
                                {"predicted ms"},
                                {"error"}},
                               rows);
}

std::string lab_section(const Outcomes& outcomes) {
  std::string page =
      "## A lab that shapes nothing, against no lab (measured)\n\nThe same run in namespaces "
      "joined "
      "by a bridge, links unshaped, and as processes of one machine over loopback.\n\n";
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> parts;
  for (const Outcome& outcome : outcomes) {
    if (std::find(parts.begin(), parts.end(), outcome.trial.part) == parts.end()) {
      parts.push_back(outcome.trial.part);
    }
  }
  const std::vector<Case> sweep = cases_of(outcomes, "bandwidth");
  for (const std::string& part : parts) {
    const std::vector<Case> cases = cases_of(outcomes, part);
    for (const Case& bare : cases) {
      if (bare.rate != "none") continue;
      const Case* own = find_case(cases, bare.method, "unshaped");
      const Case* lab = own ? own : find_case(sweep, bare.method, "unshaped");
      if (!lab) continue;
      rows.push_back({part, bare.method, text(scaled(seconds_of(bare), 1e3), 0),
                      text(scaled(seconds_of(*lab), 1e3), 0),
                      text(ratio_of(seconds_of(*lab), seconds_of(bare)), 3)});
    }
  }
  if (rows.empty()) return page + "No method was measured in both ways.\n\n";
  return page + markdown_table({{"part", Align::left},
                                {"", Align::left},
                                {"no lab, step ms"},
                                {"lab, unshaped, step ms"},
                                {"lab / no lab"}},
                               rows);
}

}  // namespace

double header_bytes(double packets) {
  return kHeader * packets;
}

double expected_interface_bytes(double meter) {
  return meter + kHeader * std::ceil(meter / kPayload);
}

double difference(const MeterCheck& check) {
  return (check.interface - check.headers) / check.meter - 1;
}

std::vector<MeterCheck> meter_checks(const Outcomes& outcomes) {
  std::vector<MeterCheck> checks;
  for (const Outcome& outcome : outcomes) {
    const Trial& trial = outcome.trial;
    if (!outcome.failure.empty() || trial.program != Program::laconic) continue;
    double meter = 0;
    for (const ClassTotal& total : outcome.traffic) meter += total.wire_bytes;
    if (!(meter > 0) || !(outcome.interface_sent_bytes > 0) || !(outcome.interface_packets > 0)) {
      continue;
    }
    checks.push_back({trial.part, trial.method, trial.rate, trial.round, meter,
                      outcome.interface_sent_bytes, header_bytes(outcome.interface_packets)});
  }
  return checks;
}

std::optional<double> predicted_seconds(const Outcome& outcome) {
  const RunShape shape = shape_of(outcome);
  const auto kind = kind_of(outcome);
  const PipelineShape pipeline = {shape.pp, shape.pp * shape.chunks, microbatches_of(shape)};
  const auto ranks = static_cast<std::size_t>(shape.pp) * static_cast<std::size_t>(shape.dp);
  if (!kind || pipeline.microbatches < 1 || outcome.steps.empty() || outcome.traffic.empty() ||
      outcome.computing_seconds.size() < ranks || !check(*kind, pipeline).empty()) {
    return {};
  }
  const Schedule schedule = lowered(build(*kind, pipeline));
  const Costs costs = costs_of(outcome, shape, schedule);
  if (!check(costs, schedule).empty()) return {};
  return estimate(schedule, costs).makespan;
}

std::vector<Prediction> predictions_of(const Outcomes& outcomes) {
  std::vector<Prediction> predictions;
  for (const char* part : {"honesty", "bandwidth"}) {
    for (const Case& one : cases_of(outcomes, part)) {
      const Trial& trial = one.rounds.front().trial;
      if (one.rate == "none" || has_memory(trial) || bypasses(trial)) continue;
      std::vector<double> values;
      for (const Outcome& outcome : one.rounds) {
        if (const auto seconds = predicted_seconds(outcome)) values.push_back(*seconds);
      }
      const Prediction found = {one.part, one.method, one.rate, seconds_of(one), spread_of(values)};
      if (is_known(found.measured) && is_known(found.predicted)) predictions.push_back(found);
    }
  }
  return predictions;
}

double error_of(const Prediction& prediction) {
  return prediction.predicted.median / prediction.measured.median - 1;
}

std::string honesty_page(const Outcomes& outcomes) {
  return "# Honesty: our numbers against others\n\n" + setting_text(outcomes) + how_to_read() +
         meter_section(outcomes) + estimate_section(outcomes) + lab_section(outcomes);
}

}  // namespace laconic
