// launch/supervise.hpp — what to do with ranks of which some have ended, and who is to blame.
//
// Pure functions of how the ranks stand and what time it is; launch/local.cpp
// asks them after every event and does what they say.
//
// A rank that fails takes the others with it: they lose a peer and end with
// exit code 3, by themselves, within the deadline of the network. So they are
// given a grace, and only who outstays it is pressed: asked to end (SIGTERM),
// then killed. After a refusal (a configuration that one rank alone cannot read) the
// grace is short: a peer that never came has no loss to be found out, and nothing is
// there that could be saved. A user's signal is passed on once; the next one kills.
//
// Exit code 3 and an end under our own pressure are consequences. The cause is
// the first failure that is neither, and its exit code is that of the whole.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace laconic {

// How hard a rank is pressed to end; each includes those before it.
enum class Pressure { none, interrupt, terminate, kill };

struct RankState {
  bool has_ended = false;
  int exit_code = 0;                   // where no signal ended it
  int signal = 0;                      // that ended it
  double ended_at = 0;                 // seconds since the ranks were started
  Pressure pressure = Pressure::none;  // that it was under when it ended
};

using RankStates = std::vector<RankState>;

// What the user has sent us.
struct Interruption {
  int signal = 0;          // the first; 0: none
  bool is_urgent = false;  // there was a second
};

struct Patience {
  double grace_seconds = 65;     // from the first failure until SIGTERM
  double refusal_seconds = 5;    // the same where that was a refusal: for others to refuse as well
  double terminate_seconds = 5;  // from there until SIGKILL
};

struct Decision {
  bool is_over = false;  // all have ended
  Pressure pressure = Pressure::none;
  std::optional<double> ask_again_at;  // when time alone will change the decision
};

// Seconds from this failure, the first, until SIGTERM.
double grace_after(const RankState& failed, const Patience& patience);

Decision decide(const RankStates& ranks, const Interruption& interruption, double now,
                const Patience& patience);

struct Verdict {
  int exit_code = 0;  // of the whole; 128 + n after signal n
  int cause = -1;     // the rank that failed first and by itself, -1: none
  bool is_worth_retrying = false;
};

// Requires: all have ended.
Verdict judge(const RankStates& ranks, const Interruption& interruption);

// Ended otherwise than with success, and not because the user interrupted it.
bool has_failed(const RankState& rank, const Interruption& interruption);

// "was killed by signal 9 (Killed)", "ended with exit code 3 (lost another rank)", "is running"
std::string describe(const RankState& rank);
// One line for each rank, the cause marked.
std::string to_text(const RankStates& ranks, const Verdict& verdict);

}  // namespace laconic
