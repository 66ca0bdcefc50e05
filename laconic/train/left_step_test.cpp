// One process that hears of a step when the next one has been computed, as it does on a GPU: the
// same run as one that waits for every step.
#include "laconic/config/read.hpp"
#include "laconic/train/step.hpp"
#include "laconic/train/test_runs.hpp"

namespace laconic {
namespace {

class LeftSteps : public Runs {
 protected:
  struct Outcome {
    TrainSummary summary;
    std::string error;
    std::map<std::int64_t, double> losses;
  };

  // Of a run that waits, and of one that does not.
  std::pair<Outcome, Outcome> both(const RunConfig& c, RunHooks hooks = {}) {
    std::pair<Outcome, Outcome> outcomes;
    for (const bool leaves : {false, true}) {
      Outcome& outcome = leaves ? outcomes.second : outcomes.first;
      hooks.leaves_steps = leaves;
      RunConfig own = c;
      const std::string name = name_of(leaves);
      own.run.folder = folder_ / name;
      try {
        outcome.summary = run(own, "none", hooks);
      } catch (const NotFinite& error) {
        outcome.error = error.what();
      }
      outcome.losses = losses(name);
    }
    return outcomes;
  }
  static std::string name_of(bool leaves) { return leaves ? "leaves" : "waits"; }

  void expect_equal_checkpoints(int step) {
    const std::string place = fmt::format("checkpoints/step-{:08}", step);
    expect_equal_files(folder_ / (name_of(false) + "/" + place),
                       folder_ / (name_of(true) + "/" + place));
    for (const char* key : {"step", "position", "skipped", "skipped_in_a_row"})
      EXPECT_EQ(state_of(false, place)[key], state_of(true, place)[key]) << key;
  }
  nlohmann::json state_of(bool leaves, const std::string& place) {
    return nlohmann::json::parse(bytes(folder_ / (name_of(leaves) + "/" + place + "/state.json")));
  }
  void clear() {
    for (const bool leaves : {false, true}) std::filesystem::remove_all(folder_ / name_of(leaves));
  }
};

TEST_F(LeftSteps, TrainTheSameModelAndWriteTheSameLog) {
  for (const char* kind : {"adamw", "sgd", "lion", "muon"}) {
    SCOPED_TRACE(kind);
    RunConfig c = config("");
    ASSERT_TRUE(apply_set(std::string("optimiser.kind=") + kind, c).empty());
    c.train.clip = 0.5;  // some steps are clipped
    c.evaluate.every = 2;
    c.checkpoint.every = 3;
    const auto [waits, leaves] = both(c);
    EXPECT_EQ(leaves.losses, waits.losses);
    EXPECT_EQ(leaves.losses.size(), 7U);
    EXPECT_EQ(leaves.summary.evaluation->loss, waits.summary.evaluation->loss);
    EXPECT_EQ(leaves.summary.tokens, waits.summary.tokens);
    for (const int step : {3, 6, 7}) expect_equal_checkpoints(step);
    clear();
  }
}

TEST_F(LeftSteps, AStepThatIsNotFiniteStopsWithTheStateBeforeIt) {
  for (const std::int64_t bad : {0, 3, 5, 6}) {  // 5 is followed by an evaluation, 6 by nothing
    SCOPED_TRACE(bad);
    RunConfig c = config("");
    c.evaluate.every = 6;
    const auto [waits, leaves] = both(c, {.spoiled = {bad}});
    EXPECT_FALSE(leaves.error.empty());
    const auto without_place = [](const std::string& error) {
      return error.substr(0, error.find("The last good state"));
    };
    EXPECT_EQ(without_place(leaves.error), without_place(waits.error));
    EXPECT_EQ(leaves.losses, waits.losses);
    expect_equal_checkpoints(static_cast<int>(bad));
    clear();
  }
}

TEST_F(LeftSteps, StepsThatAreLeftOutLeaveNoTrace) {
  for (const std::set<std::int64_t>& bad :
       {std::set<std::int64_t>{2}, {0}, {2, 3}, {1, 3}, {3}, {5, 6}, {6}}) {
    SCOPED_TRACE(fmt::format("{} steps from {}", bad.size(), *bad.begin()));
    RunConfig c = config("");
    c.train.non_finite = NonFinite::skip;
    c.evaluate.every = 4;  // behind step 3
    c.checkpoint.every = 4;
    const auto [waits, leaves] = both(c, {.spoiled = bad});
    EXPECT_EQ(leaves.summary.skipped, static_cast<std::int64_t>(bad.size()));
    EXPECT_EQ(leaves.losses, waits.losses);
    for (const int step : {4, 7}) expect_equal_checkpoints(step);
    clear();
  }
}

TEST_F(LeftSteps, TenInARowThatAreNotFiniteEndTheRun) {
  RunConfig c = config("");
  c.train.steps = 20;
  c.train.non_finite = NonFinite::skip;
  const auto [waits, leaves] = both(c, {.spoiled = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11}});
  EXPECT_NE(leaves.error.find("step 12: the 10th in a row"), std::string::npos) << leaves.error;
  expect_equal_checkpoints(11);
}

TEST_F(LeftSteps, AnInterruptedRunGoesOnAsIfItHadNotBeen) {
  const RunHooks hooks = {.leaves_steps = true};
  const TrainSummary whole = run(config("whole"), "none", hooks);
  const RunConfig c = config("interrupted");
  const TrainSummary stopped = train({.config = c, .stop_signal = [] { return 15; }}, hooks);
  EXPECT_EQ(stopped.signal, 15);
  EXPECT_EQ(stopped.step, 2);  // the first is heard of when the second has been computed
  const TrainSummary resumed = run(c, "auto", hooks);
  expect_equal_files(resumed.checkpoint, whole.checkpoint);
  EXPECT_EQ(losses("interrupted"), losses("whole"));
}

}  // namespace
}  // namespace laconic
