// Pipelines whose ranks are processes: what they train, how they end, how they go on.
#include <fmt/format.h>

#include "laconic/base/test_effort.hpp"
#include "tests/processes/workplace.hpp"

namespace laconic {
namespace {

Words sets(const std::vector<std::string>& assignments) {
  Words words;
  for (const std::string& assignment : assignments) words = words + Words{"--set", assignment};
  return words;
}

const std::vector<std::string> kAcSgd = {
    "pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
    "pp.gradient.codec=quantise:bits=8", "dp.gradient.codec=quantise:bits=4",
    "dp.gradient.algorithm=direct"};
const std::vector<std::string> kOptimusCc = {
    "pp.gradient.codec=low_rank:rank=2", "pp.gradient.memory=feedback", "pp.gradient.when=epilogue",
    "dp.gradient.method=power_sgd",      "dp.gradient.rank=2",          "dp.gradient.stages=1"};

// What is remembered besides: sums that are a step late, directions that both ends learn, and those
// that the model learns.
const std::vector<std::string> kLateTransform = {"embedding.tied.late=1",
                                                 "embedding.tied.late_after=2",
                                                 "embedding.tied.codec=quantise:bits=4",
                                                 "dp.gradient.late=1",
                                                 "dp.gradient.late_after=3",
                                                 "dp.gradient.codec=quantise:bits=4",
                                                 "dp.gradient.algorithm=direct",
                                                 "pp.activation.codec=transform:bits=5,refresh=2"};
const std::vector<std::string> kDeltaTransform = {
    "pp.activation.codec=transform:bits=4,refresh=2", "pp.activation.memory=delta",
    "pp.activation.first=transform:bits=6,refresh=2", "dp.gradient.algorithm=direct"};
const std::vector<std::string> kLearnedProjection = {
    "model.project_after=\"1\"", "model.project_rank=6", "model.project_basis=learned",
    "model.project_anchor=learned", "dp.gradient.algorithm=direct"};
const std::vector<std::string> kProjectionOfMaps = {
    "model.project_after=\"1\"",         "model.project_rank=6",
    "model.project_basis=maps",          "model.project_start=pca",
    "dp.gradient.codec=quantise:bits=4", "embedding.tied.late=1",
    "embedding.tied.late_after=0",       "dp.gradient.algorithm=direct"};

class PipelineProcesses : public Workplace {
 protected:
  PipelineProcesses() { prepare(); }

  // Two stages of two replicas each.
  static Words on_four(const std::string& run, const std::vector<std::string>& more) {
    return Words{"train", "run.toml", "--ranks", "4"} +
           sets({"mesh.pp=2", "mesh.dp=2", "train.batch=8", "train.microbatch=1", "train.steps=8",
                 "network.preflight=false", "network.deadline=10", "run.folder=" + run}) +
           sets(more);
  }
};

// Threads were compared with one process (tests/equivalence), so processes are too.
TEST_F(PipelineProcesses, TrainOverGlooWhatThreadsTrain) {
  int number = 0;
  const std::vector<std::vector<std::string>> policies = {{}, kAcSgd, kOptimusCc};
  for (const auto& policy : some_of(policies, 2, 1)) {
    const std::string name = fmt::format("runs/{}", number++);
    auto threads = policy;
    threads.push_back("network.transport=in_process");
    expect_exit(0, on_four(name + "-processes", policy));
    expect_exit(0, on_four(name + "-threads", threads));
    expect_same_end(name + "-processes", name + "-threads", 8);
  }
}

TEST_F(PipelineProcesses, ThreadsNeedNoReplicas) {
  expect_exit(0, Words{"train", "run.toml"} +
                     sets({"mesh.pp=2", "network.transport=in_process", "run.folder=runs/threads",
                           "train.batch=8", "train.steps=8"}));
  expect_exit(0, Words{"train", "run.toml"} + sets({"mesh.pp=2", "run.folder=runs/processes",
                                                    "train.batch=8", "train.steps=8"}));
  expect_same_end("runs/threads", "runs/processes", 8);
}

TEST_F(PipelineProcesses, GoOnAfterAKillAsIfNothingHadBeen) {
  const std::vector<std::vector<std::string>> policies = {
      kAcSgd, kOptimusCc, kDeltaTransform, kProjectionOfMaps, kLateTransform, kLearnedProjection};
  int number = 0;
  for (const auto& policy : some_of(policies, 3, 1)) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(policy, " ")));
    const std::string name = fmt::format("runs/{}", number++);
    auto threads = policy;  // which train the same: see above
    threads.push_back("network.transport=in_process");
    expect_exit(0, on_four(name + "-whole", threads));
    auto killed = policy;
    killed.push_back("network.faults=kill:rank=3,traffic=pp.gradient,at=22");
    const ProcessResult outcome =
        laconic(on_four(name + "-killed", killed) + Words{"--max-restarts", "1"});
    EXPECT_NE(outcome.err.find("rank 3 was killed by signal 9"), std::string::npos)
        << to_text(outcome);
    // The fault strikes the second attempt at the same send, if that comes so far: it begins later.
    if (outcome.exit_code != 0)
      expect_exit(0, on_four(name + "-killed", policy) + Words{"--resume", "auto"});
    expect_same_end(name + "-whole", name + "-killed", 8);
  }
}

TEST_F(PipelineProcesses, AMessageThatNeverComesIsNamed) {
  const ProcessResult outcome = laconic(on_four(
      "runs/a", {"network.faults=drop:rank=0,traffic=pp.activation,at=5", "network.deadline=2"}));
  EXPECT_EQ(outcome.exit_code, 3) << to_text(outcome);
  const std::string verdict = text("runs/a/flight/verdict.txt");
  EXPECT_NE(verdict.substr(0, verdict.find('\n')).find("pp.activation 0 #5 "), std::string::npos)
      << verdict;
}

TEST_F(PipelineProcesses, AMeshThatNeedsOtherRanksIsRefusedBeforeTheyStart) {
  const ProcessResult outcome =
      laconic(Words{"train", "run.toml", "--ranks", "3"} + sets({"mesh.pp=2", "mesh.dp=2"}));
  EXPECT_EQ(outcome.exit_code, 2) << to_text(outcome);
  EXPECT_NE(outcome.err.find("--ranks says 3"), std::string::npos) << to_text(outcome);
}

}  // namespace
}  // namespace laconic
