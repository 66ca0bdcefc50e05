#include "laconic/launch/supervise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

namespace {

int code_of(const RankState& rank) {
  return rank.signal != 0 ? 128 + rank.signal : rank.exit_code;
}

// Ended as the user's signal asks: saved and left, or left at once.
bool has_obeyed(const RankState& rank, const Interruption& interruption) {
  return interruption.signal != 0 && code_of(rank) == 128 + interruption.signal;
}

bool is_consequence(const RankState& rank) {
  return rank.pressure >= Pressure::terminate ||
         (rank.signal == 0 && rank.exit_code == kExitPeerLost);
}

// The first failing rank for which `counts`; -1: none.
template <class Counts>
int first_failing(const RankStates& ranks, const Interruption& interruption, Counts counts) {
  int first = -1;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!has_failed(ranks[i], interruption) || !counts(ranks[i])) continue;
    if (first < 0 || ranks[i].ended_at < ranks[static_cast<std::size_t>(first)].ended_at)
      first = static_cast<int>(i);
  }
  return first;
}

// Not worth it: a refusal, a program that cannot be started, and what somebody asked for.
bool may_succeed_next_time(const RankState& rank) {
  if (rank.signal != 0) return rank.signal != SIGINT && rank.signal != SIGTERM;
  return rank.exit_code == kExitFailure || rank.exit_code == kExitPeerLost;
}

std::string_view meaning_of(int exit_code) {
  switch (exit_code) {
    case 0: return "done";
    case kExitFailure: return "failed";
    case kExitRefused: return "refused";
    case kExitPeerLost: return "lost another rank";
    case 127: return "cannot be started";
    case 128 + SIGHUP:
    case 128 + SIGINT:
    case 128 + SIGTERM: return "interrupted";
    default: return "";
  }
}

}  // namespace

bool has_failed(const RankState& rank, const Interruption& interruption) {
  return rank.has_ended && code_of(rank) != 0 && !has_obeyed(rank, interruption);
}

double grace_after(const RankState& failed, const Patience& patience) {
  const bool is_refusal = failed.signal == 0 && failed.exit_code == kExitRefused;
  return is_refusal ? std::min(patience.refusal_seconds, patience.grace_seconds)
                    : patience.grace_seconds;
}

Decision decide(const RankStates& ranks, const Interruption& interruption, double now,
                const Patience& patience) {
  if (std::ranges::all_of(ranks, &RankState::has_ended)) return {.is_over = true};
  Decision decision;
  if (interruption.signal != 0) decision.pressure = Pressure::interrupt;
  const int first = first_failing(ranks, interruption, [](const RankState&) { return true; });
  if (first >= 0) {
    const RankState& failed = ranks[static_cast<std::size_t>(first)];
    const double terminate_at = failed.ended_at + grace_after(failed, patience);
    const double kill_at = terminate_at + patience.terminate_seconds;
    if (now >= terminate_at) decision.pressure = Pressure::terminate;
    if (now >= kill_at) decision.pressure = Pressure::kill;
    if (now < kill_at) decision.ask_again_at = now < terminate_at ? terminate_at : kill_at;
  }
  if (interruption.is_urgent) decision = {.pressure = Pressure::kill};
  return decision;
}

Verdict judge(const RankStates& ranks, const Interruption& interruption) {
  const int cause = first_failing(ranks, interruption,
                                  [](const RankState& rank) { return !is_consequence(rank); });
  const bool is_success =
      std::ranges::all_of(ranks, [](const RankState& rank) { return code_of(rank) == 0; });
  if (cause < 0 && is_success) return {};
  if (cause < 0 && interruption.signal != 0) return {.exit_code = 128 + interruption.signal};
  const int blamed =
      cause >= 0 ? cause
                 : first_failing(ranks, interruption, [](const RankState&) { return true; });
  const RankState& rank = ranks[static_cast<std::size_t>(blamed)];
  return {.exit_code = code_of(rank),
          .cause = blamed,
          .is_worth_retrying = interruption.signal == 0 && may_succeed_next_time(rank)};
}

std::string describe(const RankState& rank) {
  if (!rank.has_ended) return "is running";
  if (rank.signal != 0)
    return fmt::format("was killed by signal {} ({})", rank.signal, ::strsignal(rank.signal));
  const std::string_view meaning = meaning_of(rank.exit_code);
  return fmt::format("ended with exit code {}{}", rank.exit_code,
                     meaning.empty() ? "" : fmt::format(" ({})", meaning));
}

std::string to_text(const RankStates& ranks, const Verdict& verdict) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += fmt::format("  rank {:<3} {} after {}", i, describe(ranks[i]),
                        human_seconds(ranks[i].ended_at));
    if (ranks[i].pressure >= Pressure::terminate) text += ", made to stop";
    if (static_cast<int>(i) == verdict.cause) text += "  <- first";
    text += '\n';
  }
  return text;
}

}  // namespace laconic
