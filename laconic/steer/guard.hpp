// steer/guard.hpp — whether what receivers get is still good enough, and what to do if not. Pure.
//
// A measurement is what one step's messages of a class came to, summed over all ranks
// (link/fidelity.hpp). Three thresholds judge it, and `patience` bad measurements in a row
// make an alarm. An alarm proposes the next rung of a ladder:
//
//   quantise  bits 1 2 3 4 6 8 ─► half (bf16) ─► raw
//   sign      ─► quantise:bits=4 ─► ...
//   others    ─► raw
//
// and with power_sgd the same for the codec of its factors. A class with another codec begins
// anew: drift is measured from the first three measurements since.
//
// All ranks judge the same numbers in the same order; what rank 0 comes to is done. The state is
// part of the checkpoint: patience must not begin again where a run goes on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/link/codec_override.hpp"
#include "laconic/link/fidelity.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

struct GuardSpec {
  bool acts = false;  // fallback: what it proposes is done
  double min_cosine = 0.5;
  double max_error = 1;
  double max_residual = 10;
  std::int64_t patience = 2;
};
GuardSpec guard_spec_of(const SteeringSection& steering);

// What a measurement amounts to. A codec that overflows makes ratios that are no numbers; they are
// told as kBeyond, and such a cosine as 0.
inline constexpr double kBeyond = 1e9;
struct GuardReading {
  double cosine = 1;
  double relative_error = 0;
  double residual_ratio = 0;
  bool operator==(const GuardReading&) const = default;
};
GuardReading reading_of(const Fidelity& fidelity);

// What is remembered of a class from measurement to measurement.
struct ClassHistory {
  std::int64_t measurements = 0;  // since its messages are encoded as now
  std::int64_t bad_in_a_row = 0;  // the last so many of them
  GuardReading first;             // mean of the first three of them, or of fewer
  std::int64_t step = 0;          // of the last measurement
  GuardReading last;
  GuardReading worst;          // of the whole run, each number by itself
  GuardReading drift() const;  // last - first
  bool operator==(const ClassHistory&) const = default;
};
using GuardState = std::map<Traffic, ClassHistory>;

// What is better for messages that travel by this codec now. Raw ones can only be those of
// power_sgd, whose matrices then travel raw.
CodecOverride next_rung(const CodecSpec& now);

struct Measurement {
  Fidelity fidelity;   // of all ranks
  CodecOverride next;  // what would be better
};

// A number on the wrong side.
struct Crossing {
  std::string what;       // "cosine"
  std::string threshold;  // "steering.min_cosine"
  double value = 0;
  double limit = 0;
  bool is_below = false;
};

struct Alarm {
  Traffic traffic = Traffic::control;
  std::int64_t step = 0;
  std::int64_t in_a_row = 0;
  std::vector<Crossing> crossed;  // at this measurement
  CodecOverride proposed;         // from the next step on, if is_followed
  bool is_followed = false;
};
// "guard: step 40, pp.gradient: cosine 0.31 is below steering.min_cosine = 0.5 (2 measurements in a
// row); from step 41 on by quantise:bits=6"
std::string to_text(const Alarm& alarm);

// Adds what was measured in `step`, counted from 1, to the state. Classes without messages are
// passed over. A class that stays bad gives an alarm at every `patience`-th measurement.
std::vector<Alarm> judge(const GuardSpec& spec, GuardState& state, std::int64_t step,
                         const std::map<Traffic, Measurement>& measurements);

// For checkpoints; guard_state_from(to_json(s)) == s. Throws ConfigError when it is none.
std::string to_json(const GuardState& state);
GuardState guard_state_from(const std::string& json);

}  // namespace laconic
