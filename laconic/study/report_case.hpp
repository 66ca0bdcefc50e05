// study/report_case.hpp — the rounds of one method at one rate, and what they measured.
//
// What one could get wrong: which steps count. A method whose links remember
// samples is slower in its first epoch, when there is nothing to remember yet. Of
// such a run the steps of later epochs count, and those of the first are a row of
// their own; a step that has samples of both is in neither, and the very first
// step, which allocates, in none. Steps of the warm-up never count.
//
// Numbers that a run did not leave behind are absent (no rounds, no value), never 0.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "laconic/study/statistics.hpp"
#include "laconic/study/trial.hpp"

namespace laconic {

struct Case {
  std::string part, method, rate;
  std::vector<Outcome> rounds;  // those that went well, at least one
};
// Groups the outcomes of one part, in the order of their first outcome.
std::vector<Case> cases_of(const std::vector<Outcome>& outcomes, const std::string& part);
const Case* find_case(const std::vector<Case>& cases, const std::string& method,
                      const std::string& rate);
// In order, each once.
std::vector<std::string> methods_of(const std::vector<Case>& cases);
std::vector<std::string> rates_of(const std::vector<Case>& cases);  // fastest first, see below

// "none" (not in a lab) before "unshaped" before rates from the fastest to the slowest.
std::vector<std::string> sorted_rates(std::vector<std::string> rates);
// Bits per second of payload that TCP carries over a link of that rate; none where it has no rate.
std::optional<double> payload_bits(const std::string& rate);

// A key's value: what the trial sets, or else what its command says (`--set key=value`,
// `--key value`).
std::optional<std::string> setting_of(const Outcome& outcome, const std::string& key);

struct RunShape {  // of the ranks and the batch
  int pp = 1;
  int dp = 1;
  int chunks = 1;
  double batch = 0;       // samples of a step, all ranks; 0: not known
  double microbatch = 0;  // 0: not known
  double context = 0;     // tokens of a sample; 0: not known
};
RunShape shape_of(const Outcome& outcome);
// How many a replica's batch is cut into; 0 when that is not known.
int microbatches_of(const RunShape& shape);

bool has_memory(const Trial& trial);
// Tells whether a run may stop encoding half way: its totals then say little about its end.
bool bypasses(const Trial& trial);

enum class Which : std::uint8_t { counted, first_epoch };
// Returns the rows that `which` means. A run without memory has none of the first epoch.
std::vector<StepRow> steps_of(const Outcome& outcome, Which which);

// Takes the median over the steps of each round, and the spread of these medians over rounds.
Spread over_steps(const Case& one, Which which, const std::function<double(const StepRow&)>& value);
Spread seconds_of(const Case& one, Which which = Which::counted);
Spread exposed_share(const Case& one, Which which = Which::counted);  // of the step, rank 0
// Returns the share of a step at `rate` that the links add: 1 - unshaped step / step. The bubble,
// other ranks and encoding are in both steps. None where one of the two was not measured.
std::optional<double> communication_share(const std::vector<Case>& part, const std::string& method,
                                          const std::string& rate);
Spread first_rank_bytes(const Case& one, Which which = Which::counted);
Spread samples_per_second(const Case& one, Which which = Which::counted);
// Looks up the tokens of a sample in the run's command, or, where it starts from weights and does
// not say, in that of another run of the part with the same model.
Spread tokens_per_second(const Case& one, const std::vector<Case>& part);

// Tells messages of training from agreements between ranks and the pre-flight.
bool is_training(const ClassTotal& total);

// Means over all steps of the run, the first epoch included.
Spread wire_bytes_per_step(const Case& one);     // all ranks, training alone
Spread saved_bytes_per_step(const Case& one);    // raw - wire of the same, of a mean rank
Spread codec_seconds_per_step(const Case& one);  // a rank's encoding and decoding

// Returns the bytes of a step that counts, over all hosts, headers and acknowledgements included.
// For DDP they are measured: the kernel's counters around these steps. For Laconic they are
// composed: its meter's bytes of these steps, times kernel's / meter's bytes over the whole run.
Spread network_bytes_per_step(const Case& one);

// What the busiest outlet sends in a step; see the source for which that is.
struct OutletBytes {
  double raw = 0;
  double wire = 0;
};
OutletBytes busiest_outlet(const Outcome& outcome);

// Mean of at most five losses, the last of them at `step` (from 1); none when there is no such
// step or a loss is not finite.
std::optional<double> loss_at(const Outcome& outcome, std::size_t step);
Spread final_loss(const Case& one, std::size_t step);
// Averages the losses from kLossReach steps before `step` to as many after it; fewer near the ends,
// but equally many on either side. A mean of earlier losses alone would be too high, since losses
// fall.
std::optional<double> centred_loss_at(const Outcome& outcome, std::size_t step);
inline constexpr std::size_t kLossReach = 2;
// The number of steps that all rounds of all of these have.
std::size_t common_steps(const std::vector<Case>& cases);

}  // namespace laconic
