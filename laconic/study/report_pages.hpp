// study/report_pages.hpp — the pages and figures of a report, each a pure function of outcomes.
//
// A page never fails for want of outcomes: what was not measured has a sentence
// in its place. What is not measured but worked out of measurements says
// "composed", what a model of the network says "predicted".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "laconic/study/plot.hpp"
#include "laconic/study/report.hpp"
#include "laconic/study/report_markdown.hpp"
#include "laconic/study/report_payment.hpp"
#include "laconic/study/trial.hpp"

namespace laconic {

using Outcomes = std::vector<Outcome>;

// What stands in brackets; every page with numbers says it once, after setting_text().
std::string how_to_read();

std::string bandwidth_page(const Outcomes& outcomes, const Drawn& drawn);
std::string end_to_end_page(const Outcomes& outcomes);
std::string optimus_page(const Outcomes& outcomes);
std::string data_parallel_page(const Outcomes& outcomes, const Drawn& drawn);
std::string pays_page(const Outcomes& outcomes, const Drawn& drawn);
std::string honesty_page(const Outcomes& outcomes);
std::string targets_page(const Outcomes& outcomes);
// README.md of the dated folder: what is where, what was run on what, and what failed.
std::string contents_page(const Outcomes& outcomes, const ReportFacts& facts);
// The page people read. `prefix` leads from it to the dated folder.
std::string summary_page(const Outcomes& outcomes, const ReportFacts& facts, const Drawn& drawn,
                         const std::string& prefix);
// Lines for a shell, to be run in their order: what makes the data, then every trial's command.
std::string commands_text(const Outcomes& outcomes, const ReportFacts& facts);

// All of them; one without data has no curves with points.
std::vector<Figure> figures_of(const Outcomes& outcomes);
Figure speed_figure(const Outcomes& outcomes);
Figure tokens_figure(const Outcomes& outcomes);
Figure loss_figure(const Outcomes& outcomes);  // composed, at kLossRate
Figure bytes_figure(const Outcomes& outcomes);
Figure gain_figure(const Outcomes& outcomes);
inline constexpr const char* kLossRate = "100mbit";

// --- What pages have in common

// All trials of the report have ended well: none has failed, was skipped or is missing.
bool is_complete(const Outcomes& outcomes, const ReportFacts& facts);

// "bandwidth, 100mbit, fp32, round 2"
std::string described(const Trial& trial);

// What communication_share() is, and a cell of it in per cent.
std::string communication_note();
std::string communication_text(const std::vector<Case>& part, const Case& one);

// Where encoding made steps longer: every case; or a line for each part, which also says at which
// rates nothing gains.
std::string losing_sentences(const Outcomes& outcomes);
std::string losing_summary(const Outcomes& outcomes);

// Losses by step, placed at the seconds that steps of this rate were measured to take. What some
// methods send in their first steps is whole: these take as long as those of the same program that
// sends all whole.
struct ComposedLoss {
  std::string method;
  Spread step_seconds;
  Outcome losses;  // the first round's
  std::size_t whole_steps = 0;
  Spread whole_seconds = {};  // of one of these
};
std::vector<ComposedLoss> composed_losses(const Outcomes& outcomes, const std::string& rate);
// When the first of them has done all but its last two steps (all, where it has fewer than three):
// until then every one of them has losses on either side of its step.
double common_seconds(const std::vector<ComposedLoss>& losses);
// The centred loss of the last step that is done by then; its least and most are those at the
// fastest and the slowest round's seconds. Unknown where no step is done yet, and where losses are
// not finite.
Spread loss_after(const ComposedLoss& losses, double seconds);
std::size_t steps_after(const ComposedLoss& losses, double seconds);
// Against DDP's after equally many steps, in per cent; none where one is not known.
std::optional<double> loss_excess_percent(const Outcomes& outcomes, const std::string& method);

// Bytes by our own meter and by the kernel's of one run.
struct MeterCheck {
  std::string part, method, rate;
  int round = 1;
  double meter = 0;      // wire bytes of all classes and ranks
  double interface = 0;  // all hosts' eth0, headers included
  double headers = 0;    // of the packets that were counted
};
std::vector<MeterCheck> meter_checks(const Outcomes& outcomes);
double header_bytes(double packets);
double difference(const MeterCheck& check);     // (interface - headers) / meter - 1
double expected_interface_bytes(double meter);  // full packets, without acknowledgements
inline constexpr double kMeterTolerance = 0.03;

// A step as schedule/estimate.hpp has it, fed with what the run measured.
struct Prediction {
  std::string part, method, rate;
  Spread measured, predicted;  // seconds
};
std::vector<Prediction> predictions_of(const Outcomes& outcomes);
double error_of(const Prediction& prediction);  // predicted / measured - 1
// None when the run lacks what it takes, or there is no such schedule.
std::optional<double> predicted_seconds(const Outcome& outcome);
inline constexpr double kEstimateTolerance = 0.15;

// The default is not_measured, so that a forgotten judgement claims nothing.
enum class Judgement : std::uint8_t { not_measured, met, missed };
struct Target {
  std::string name, wanted, number, source, why;
  Judgement judgement = Judgement::not_measured;
};
std::vector<Target> targets_of(const Outcomes& outcomes);

}  // namespace laconic
