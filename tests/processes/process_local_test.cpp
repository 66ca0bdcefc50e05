// Replicas that step alone, or use sums a step late, as processes: killed at any point of a round
// and started again, they end as replicas left alone.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "laconic/base/philox.hpp"
#include "tests/processes/ranks.hpp"
#include "tests/processes/tensor_ranks.hpp"

namespace laconic {
namespace {

class LocalRanks : public Ranks {
 protected:
  static constexpr std::int64_t kSteps = 96;

  // Rounds of four steps, and a checkpoint after every second one, with changes under way.
  static Words rounds(const std::string& method) {
    Words words = {"--set", fmt::format("train.steps={}", kSteps),
                   "--set", "checkpoint.every=8",
                   "--set", "evaluate.every=16"};
    if (method == "late")
      return words + Words{"--set", "dp.gradient.late=1",
                           "--set", "dp.gradient.late_after=4",
                           "--set", "dp.gradient.algorithm=direct",
                           "--set", "dp.gradient.codec=quantise:bits=4"};
    words = words + Words{"--set", "local.steps=4", "--set", "local.method=" + method};
    if (method == "spread") {
      std::ranges::replace(words, "local.method=spread", "local.method=linear");
      return words + Words{"--set", "local.warmup=8",
                           "--set", "local.spread=true",
                           "--set", "local.overlap=1",
                           "--set", "local.refresh=4",
                           "--set", "dp.gradient.codec=quantise:bits=4"};
    }
    if (method == "linear")
      return words + Words{"--set", "local.warmup=8",
                           "--set", "local.overlap=2",
                           "--set", "local.refresh=4",
                           "--set", "dp.gradient.method=power_sgd",
                           "--set", "dp.gradient.rank=2",
                           "--set", "dp.gradient.by_block=true",
                           "--set", "dp.gradient.codec=quantise:bits=8"};
    if (method == "sparse_loco") return words;
    words = words + Words{"--set", "dp.gradient.codec=quantise:bits=4"};
    return method == "diloco" ? words : words + Words{"--set", "local.fragment=1",
                                                      "--set", "local.overlap=2",
                                                      "--set", "optimiser.kind=muon"};
  }

  // Model, losses, and what every rank remembers.
  void expect_same_run(const std::string& run, const std::string& other) const {
    expect_same_end(run, other, kSteps);
    auto states = snapshot(folder_ / checkpoint(other, kSteps));
    std::erase_if(states, [](const auto& file) { return !file.first.starts_with("rank-"); });
    EXPECT_EQ(states.size(), 3U);
    auto found = snapshot(folder_ / checkpoint(run, kSteps));
    for (const auto& [file, sum] : states) EXPECT_EQ(found[file], sum) << file;
  }
};

TEST_F(LocalRanks, KilledAtAnyPointOfARoundEndAsIfLeftAlone) {
  for (const std::string method :
       {"linear", "spread", "streaming_diloco", "diloco", "sparse_loco", "late"}) {
    SCOPED_TRACE(method);
    const std::string alone = "runs/" + method + "-alone", killed = "runs/" + method + "-killed";
    expect_exit(0, on_three(alone, rounds(method)));
    Process process(spec(on_three(killed, rounds(method) + Words{"--max-restarts", "4"})));
    for (int life = 0; life < 4; ++life) {
      // Logs are written after a step: this is in the next one, or in those behind it.
      ASSERT_TRUE(wait_for_step(process, killed, 13 + 21 * life)) << to_text(process.wait());
      ::usleep(static_cast<useconds_t>(
          20'000 * uniform_at(key_of(::getpid()), static_cast<std::uint64_t>(life))));
      kill_rank(process, life % 3);
      ASSERT_TRUE(wait_until(process, [&] {
        return contains(text("process.err"), fmt::format("restart {} of 4", life + 1));
      })) << to_text(process.wait());
    }
    const ProcessResult outcome = process.wait(90);
    EXPECT_EQ(outcome.exit_code, 0) << to_text(outcome);
    expect_same_run(killed, alone);
  }
}

// Before a message of changes leaves: some ranks have what it tells, and others do not. So late
// that what is left after the checkpoint before is too short for the fault to strike again.
TEST_F(LocalRanks, KilledWhileChangesLeaveEndAsIfLeftAlone) {
  for (const std::string method : {"linear", "spread", "streaming_diloco", "late"}) {
    SCOPED_TRACE(method);
    const std::string alone = "runs/" + method + "-alone", killed = "runs/" + method + "-killed";
    const ProcessResult whole = expect_exit(0, on_three(alone, rounds(method)));
    const int sent = sent_by_a_rank(whole.out, "dp.gradient", 3);
    ASSERT_GT(sent, 100) << whole.out;
    for (const int at : {sent * 7 / 10, sent * 7 / 10 + 11}) {
      const Words fault = {"--set",
                           fmt::format("network.faults=kill:rank=1,traffic=dp.gradient,at={}", at),
                           "--max-restarts", "1", "--overwrite"};
      const ProcessResult outcome = expect_exit(0, on_three(killed, rounds(method) + fault));
      EXPECT_TRUE(contains(outcome.err, "rank 1 was killed by signal 9")) << to_text(outcome);
      expect_same_run(killed, alone);
    }
  }
}

}  // namespace
}  // namespace laconic
