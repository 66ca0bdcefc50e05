#include "laconic/study/run_files.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

constexpr const char* kLog =
    R"({"step": 1, "loss": 7.5, "seconds": 2.5, "wire_bytes": 1000, "exposed_seconds": 0.5}
{"note": "bypass: pp.activation travels whole from step 2", "step": 1}
{"step": 1, "validation_loss": 7.4}
{"step": 2, "loss": null, "seconds": 1.5}
)";
constexpr const char* kSummary = R"({"traffic": [{"class": "pp.activation", "messages": 24,
  "raw_bytes": 4000, "wire_bytes": 500, "active_seconds": 1, "exposed_seconds": 2, "codec_seconds": 3,
  "decode_seconds": 1}],
  "pipeline": {"ranks": [{"forward_seconds": 0.25, "backward_seconds": 0.5, "waiting_seconds": 9},
                         {"forward_seconds": 0.5, "backward_seconds": 1, "waiting_seconds": 9}]}})";
constexpr const char* kLab = R"({"labs": [{"name": "run-1", "hosts": [
  {"sent_bytes": 100, "received_bytes": 7, "sent_packets": 3, "received_packets": 7},
  {"sent_bytes": 20, "received_bytes": 7, "sent_packets": 4, "received_packets": 7}]}]})";
constexpr const char* kOutput =
    "step 1\nbypass: pp.activation travels whole from step 2\nguard: raised\n[1] bypass: not said "
    "by rank 0\n";

Outcome outcome_for(Program program, const std::string& rate = "100mbit") {
  Outcome outcome;
  outcome.trial = {.rate = rate, .program = program, .warmup = 1, .steps = 1};
  return outcome;
}

TEST(FilesOfARun, OfLaconicBecomeAnOutcome) {
  Outcome outcome = outcome_for(Program::laconic);
  read_run({kLog, kSummary, kLab, kOutput}, outcome);
  ASSERT_EQ(outcome.steps.size(), 2u);
  EXPECT_EQ(outcome.steps[0], (StepRow{1, 2.5, 7.5, 1000, 0.5}));
  EXPECT_EQ(outcome.steps[1].seconds, 1.5);
  EXPECT_TRUE(std::isnan(outcome.steps[1].loss));
  EXPECT_EQ(outcome.traffic,
            (std::vector<ClassTotal>{{"pp.activation", 24, 4000, 500, 1, 2, 3, 1}}));
  EXPECT_EQ(outcome.validations, (std::vector<ValidationRow>{{1, 7.4}}));
  EXPECT_EQ(outcome.computing_seconds, (std::vector<double>{0.75, 1.5}));
  EXPECT_EQ(outcome.interface_sent_bytes, 120);
  EXPECT_EQ(outcome.interface_packets, 7);
  EXPECT_EQ(outcome.notes,
            (std::vector<std::string>{"bypass: pp.activation travels whole from step 2",
                                      "guard: raised"}));
}

TEST(FilesOfARun, OutsideALabHaveNoCounters) {
  Outcome outcome = outcome_for(Program::laconic, "none");
  read_run({kLog, kSummary, "", ""}, outcome);
  EXPECT_EQ(outcome.interface_sent_bytes, 0);
  EXPECT_EQ(outcome.steps.size(), 2u);
}

TEST(FilesOfARun, OfDdpAreALineOfJson) {
  Outcome outcome = outcome_for(Program::ddp);
  read_run({"", "", kLab,
            "a warning\n{\"old\": 1}\n{\"seconds\": [3, 2.5], \"losses\": [9, 8], "
            "\"sent_bytes_per_step_all\": 40, \"versions\": \"PyTorch 1, Python 3\"}\nbye\n"},
           outcome);
  EXPECT_EQ(outcome.steps, (std::vector<StepRow>{{1, 3, 9, 0, 0}, {2, 2.5, 8, 0, 0}}));
  EXPECT_EQ(outcome.interface_sent_bytes, 120);
  EXPECT_EQ(outcome.counted_sent_bytes, 40);
  EXPECT_EQ(outcome.versions, "PyTorch 1, Python 3");
}

TEST(FilesOfARun, ThatLackAStepOrAreDamagedAreRefused) {
  const std::string log = kLog;
  const std::string one = log.substr(0, log.find('\n') + 1);
  const RunTexts texts[] = {
      {one, kSummary, kLab, ""},                          // a step is missing
      {log + one, kSummary, kLab, ""},                    // one too many
      {"", kSummary, kLab, ""},                           // no log
      {log, "", kLab, ""},                                // no summary
      {log, "{}", kLab, ""},                              // not what it should hold
      {log, kSummary, "", ""},                            // no counters
      {log, kSummary, R"({"labs": []})", ""},             // of no lab
      {log.substr(0, 60), kSummary, kLab, ""},            // torn
      {log.substr(one.size()) + one, kSummary, kLab, ""}  // not in order
  };
  for (const RunTexts& t : texts) {
    Outcome outcome = outcome_for(Program::laconic);
    EXPECT_THROW(read_run(t, outcome), std::runtime_error) << t.log << t.summary << t.lab;
  }
  for (const char* output : {"", "no JSON\n", "{\"seconds\": [1]}\n", "{\"losses\"\n"}) {
    Outcome outcome = outcome_for(Program::ddp);
    EXPECT_THROW(read_run({"", "", kLab, output}, outcome), std::runtime_error) << output;
  }
}

TEST(ReasonOfAFailure, IsTheLastLineThatTellsOne) {
  EXPECT_EQ(failure_reason(7, ""), "exit code 7: no reason was given");
  EXPECT_EQ(failure_reason(3,
                           "[2] laconic: bad thing\n[1] laconic: rank 2 is lost: gone\n"
                           "laconic: rank 2 ended with exit code 1\nlaconic: how the ranks ended:\n"
                           "  rank 2 ended\n\n"),
            "exit code 3: [2] laconic: bad thing");
  EXPECT_EQ(failure_reason(3, "[1] rank 2 is lost: gone\n"),
            "exit code 3: [1] rank 2 is lost: gone");
}

}  // namespace
}  // namespace laconic
