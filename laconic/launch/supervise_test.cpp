#include "laconic/launch/supervise.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <functional>

namespace laconic {
namespace {

RankState exited(int code, double at = 1) {
  return {.has_ended = true, .exit_code = code, .ended_at = at};
}
RankState killed(int signal, double at = 1, Pressure pressure = Pressure::none) {
  return {.has_ended = true, .signal = signal, .ended_at = at, .pressure = pressure};
}
const RankState kRunning;
const Interruption kNone;
const Patience kPatience{.grace_seconds = 10, .terminate_seconds = 2};

TEST(Supervise, NothingHappensWhileAllRunOrSucceed) {
  for (const RankStates& ranks :
       {RankStates{kRunning}, RankStates{kRunning, kRunning}, RankStates{exited(0), kRunning}}) {
    const Decision decision = decide(ranks, kNone, 1e6, kPatience);
    EXPECT_FALSE(decision.is_over);
    EXPECT_EQ(decision.pressure, Pressure::none);
    EXPECT_EQ(decision.ask_again_at, std::nullopt);
  }
  EXPECT_TRUE(decide({exited(0), killed(9)}, kNone, 5, kPatience).is_over);
}

TEST(Supervise, AfterAFailureTheOthersHaveAGraceThenSigtermThenSigkill) {
  const RankStates ranks = {kRunning, exited(3, 7), killed(9, 5), exited(0, 1)};
  const std::tuple<double, Pressure, std::optional<double>> expected[] = {
      {5, Pressure::none, 15},         {14.9, Pressure::none, 15}, {15, Pressure::terminate, 17},
      {16.9, Pressure::terminate, 17}, {17, Pressure::kill, {}},   {100, Pressure::kill, {}}};
  for (const auto& [now, pressure, again] : expected) {
    const Decision decision = decide(ranks, kNone, now, kPatience);
    EXPECT_EQ(decision.pressure, pressure) << now;
    EXPECT_EQ(decision.ask_again_at, again) << now;
  }
}

TEST(Supervise, AfterARefusalTheOthersDoNotWaitForTheNetwork) {
  const Patience patience{.grace_seconds = 60, .refusal_seconds = 5, .terminate_seconds = 2};
  const RankStates refused = {kRunning, exited(2, 1)}, failed = {kRunning, exited(1, 1)};
  EXPECT_EQ(decide(refused, kNone, 5.9, patience).pressure, Pressure::none);
  EXPECT_EQ(decide(refused, kNone, 5.9, patience).ask_again_at, 6);
  EXPECT_EQ(decide(refused, kNone, 6, patience).pressure, Pressure::terminate);
  EXPECT_EQ(decide(refused, kNone, 8, patience).pressure, Pressure::kill);
  EXPECT_EQ(decide(failed, kNone, 8, patience).pressure, Pressure::none);
  // Who refuses after somebody was lost does not cut short the grace of that.
  EXPECT_EQ(decide({kRunning, exited(1, 1), exited(2, 2)}, kNone, 20, patience).pressure,
            Pressure::none);
  // Never longer than the grace of any failure.
  EXPECT_EQ(decide(refused, kNone, 2, {.grace_seconds = 1, .refusal_seconds = 5}).pressure,
            Pressure::terminate);
}

TEST(Supervise, AUsersSignalIsPassedOnAndTheSecondKills) {
  const RankStates ranks = {kRunning, kRunning};
  EXPECT_EQ(decide(ranks, {SIGINT}, 1, kPatience).pressure, Pressure::interrupt);
  EXPECT_EQ(decide(ranks, {SIGINT, true}, 1, kPatience).pressure, Pressure::kill);
}

TEST(Supervise, WhoObeysTheUserDoesNotHurryTheOthers) {
  // Rank 0 may still be saving long after the others have left.
  for (const RankState& obedient : {exited(128 + SIGINT), killed(SIGINT)}) {
    const Decision decision = decide({kRunning, obedient}, {SIGINT}, 1000, kPatience);
    EXPECT_EQ(decision.pressure, Pressure::interrupt);
    EXPECT_EQ(decision.ask_again_at, std::nullopt);
  }
  EXPECT_EQ(decide({kRunning, exited(1)}, {SIGINT}, 1000, kPatience).pressure, Pressure::kill);
}

// Every way a rank can end, that matters here.
const std::vector<RankState> kEnds = {
    exited(0),
    exited(1),
    exited(2),
    exited(3),
    exited(128 + SIGTERM),
    exited(128 + SIGINT),
    exited(127),
    killed(SIGKILL),
    killed(SIGSEGV),
    killed(SIGTERM),
    {.has_ended = true, .exit_code = 3, .pressure = Pressure::terminate},
    {.has_ended = true, .exit_code = 128 + SIGTERM, .pressure = Pressure::terminate},
    {.has_ended = true, .signal = SIGTERM, .pressure = Pressure::terminate},
    {.has_ended = true, .signal = SIGKILL, .pressure = Pressure::kill}};
const std::vector<Interruption> kInterruptions = {{}, {SIGTERM}, {SIGINT}, {SIGTERM, true}};

// All ends of three ranks in all orders.
void for_all_ends(const std::function<void(const RankStates& ranks, const int* order)>& body) {
  int order[3] = {0, 1, 2};
  do
    for (const RankState& a : kEnds)
      for (const RankState& b : kEnds)
        for (const RankState& c : kEnds) {
          RankStates ranks = {a, b, c};
          for (int i = 0; i < 3; ++i) ranks[static_cast<std::size_t>(order[i])].ended_at = i;
          body(ranks, order);
        }
  while (std::next_permutation(order, order + 3));
}

int code(const RankState& rank) {
  return rank.signal != 0 ? 128 + rank.signal : rank.exit_code;
}

// The first rank in order of time that `counts`; -1: none.
int first(const RankStates& ranks, const int* order,
          const std::function<bool(const RankState&)>& counts) {
  for (int i = 0; i < 3; ++i)
    if (counts(ranks[static_cast<std::size_t>(order[i])])) return order[i];
  return -1;
}

TEST(Supervise, TheFirstFailureThatIsNoConsequenceIsTheCause) {
  for (const Interruption& interruption : kInterruptions)
    for_all_ends([&](const RankStates& ranks, const int* order) {
      const auto failed = [&](const RankState& r) {
        return code(r) != 0 && (interruption.signal == 0 || code(r) != 128 + interruption.signal);
      };
      const int own = first(ranks, order, [&](const RankState& r) {
        return failed(r) && r.pressure == Pressure::none && !(r.signal == 0 && r.exit_code == 3);
      });
      const int any = first(ranks, order, failed);
      const Verdict verdict = judge(ranks, interruption);
      const bool is_success = code(ranks[0]) + code(ranks[1]) + code(ranks[2]) == 0;
      ASSERT_EQ(verdict.exit_code == 0, is_success);
      if (is_success) {
        ASSERT_EQ(verdict.cause, -1);
      } else if (own >= 0) {
        ASSERT_EQ(verdict.cause, own);
        ASSERT_EQ(verdict.exit_code, code(ranks[static_cast<std::size_t>(own)]));
      } else if (interruption.signal != 0) {
        ASSERT_EQ(verdict.cause, -1);
        ASSERT_EQ(verdict.exit_code, 128 + interruption.signal);
      } else {
        ASSERT_EQ(verdict.cause, any);
        ASSERT_EQ(verdict.exit_code, code(ranks[static_cast<std::size_t>(any)]));
      }
    });
}

TEST(Supervise, RetriesWhatMayHelpAndNothingTheUserOrARefusalEnded) {
  for (const Interruption& interruption : kInterruptions)
    for_all_ends([&](const RankStates& ranks, const int*) {
      const Verdict verdict = judge(ranks, interruption);
      const std::vector<int> retried = {1, 3, 128 + SIGKILL, 128 + SIGSEGV};
      const bool expected =
          interruption.signal == 0 && std::ranges::count(retried, verdict.exit_code) > 0;
      ASSERT_EQ(verdict.is_worth_retrying, expected) << verdict.exit_code;
    });
}

// Time only makes it harder, and the decision changes exactly when it says that it will.
TEST(Supervise, DecisionsChangeWhenTheySay) {
  for (const Interruption& interruption : kInterruptions)
    for (const RankState& a : kEnds)
      for (const RankState& b : kEnds) {
        const RankStates ranks = {a, kRunning, b};
        Decision before = decide(ranks, interruption, 1, kPatience);
        for (double now = 1; now < 20; now += 0.25) {
          const Decision decision = decide(ranks, interruption, now, kPatience);
          ASSERT_FALSE(decision.is_over);
          const bool is_due = before.ask_again_at && now >= *before.ask_again_at;
          ASSERT_EQ(decision.pressure > before.pressure, is_due) << now;
          ASSERT_GT(decision.ask_again_at.value_or(1e9), now);
          before = decision;
        }
      }
}

TEST(Supervise, ATableSaysHowEachRankEnded) {
  const RankStates ranks = {exited(3, 12.5), killed(SIGKILL, 12.25), exited(0, 3),
                            killed(SIGKILL, 90, Pressure::kill)};
  EXPECT_EQ(to_text(ranks, judge(ranks, kNone)),
            "  rank 0   ended with exit code 3 (lost another rank) after 12.5 s\n"
            "  rank 1   was killed by signal 9 (Killed) after 12.2 s  <- first\n"
            "  rank 2   ended with exit code 0 (done) after 3.0 s\n"
            "  rank 3   was killed by signal 9 (Killed) after 1 m 30 s, made to stop\n");
  EXPECT_EQ(describe(exited(77)), "ended with exit code 77");
  EXPECT_EQ(describe(kRunning), "is running");
}

}  // namespace
}  // namespace laconic
