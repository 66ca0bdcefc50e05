// tests/processes/tensor_ranks.hpp — runs on tensor grids, every rank a process.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tests/processes/workplace.hpp"

namespace laconic {

using Sets = std::vector<std::string>;  // values of --set

inline const Sets kShortMessages = {
    "tp.activation.codec=quantise:bits=8",
    "tp.gradient.codec=quantise:bits=8,rounding=stochastic,grid=ends",
    "tp.weight.codec=quantise:bits=8", "tp.weight.gradient=quantise:bits=4",
    "tp.weight.feedback=true"};
// Of four ranks each. The first gathers weights, and so has residuals.
inline const std::vector<Sets> kGrids = {{"mesh.tp=2,2,1"}, {"mesh.tp=4", "tensor.method=1d"}};

// Messages of a class that each of the ranks sent in all, from the last table of a run.
inline int sent_by_a_rank(const std::string& out, const std::string& traffic, int ranks = 4) {
  std::string digits;
  const std::size_t row = out.rfind("\n" + traffic);
  if (row == std::string::npos) return 0;
  for (std::size_t i = out.find_first_not_of(' ', row + 1 + traffic.size());
       i < out.size() && out[i] != ' '; ++i)
    if (out[i] != ',') digits += out[i];
  return std::stoi(digits) / ranks;
}

class TensorProcesses : public Workplace {
 protected:
  TensorProcesses() { prepare(); }

  static Words with(const Sets& sets) {
    Words words;
    for (const std::string& assignment : sets) words = words + Words{"--set", assignment};
    return words;
  }

  // Eight steps of eight samples into `run`.
  static Words train(const std::string& run, const Sets& sets) {
    return Words{"train", "run.toml"} +
           with({"model.heads=4", "train.batch=8", "train.steps=8", "evaluate.samples=8",
                 "network.preflight=false", "network.deadline=20", "run.folder=" + run}) +
           with(sets);
  }

  // A rank is killed by SIGKILL before a message of this class leaves, in step 6 or 7, so that what
  // is left after the checkpoint of step 4 or 6 is too short for the fault to strike again. The run
  // begins again by itself, and ends as one that nobody disturbed: model, moments and residuals.
  void expect_only_time_lost(const std::string& name, const Sets& sets,
                             const std::string& traffic) {
    SCOPED_TRACE(fmt::format("{}, {}", fmt::join(sets, " "), traffic));
    const ProcessResult whole = expect_exit(0, train(name + "-whole", sets));
    const int at = sent_by_a_rank(whole.out, traffic) * 7 / 10;
    ASSERT_GT(at, 8) << whole.out;
    const Sets fault = {fmt::format("network.faults=kill:rank=2,traffic={},at={}", traffic, at)};
    const ProcessResult outcome =
        expect_exit(0, train(name + "-killed", sets + fault) + Words{"--max-restarts", "1"});
    EXPECT_TRUE(contains(outcome.err, "rank 2 was killed by signal 9")) << to_text(outcome);
    EXPECT_TRUE(contains(outcome.err, "restart 1 of 1")) << to_text(outcome);
    expect_same_end(name + "-whole", name + "-killed", 8);
    auto states = snapshot(folder_ / checkpoint(name + "-whole", 8));
    std::erase_if(states, [](const auto& file) { return !file.first.starts_with("rank-"); });
    EXPECT_EQ(states.empty(), sets != kGrids[0] + kShortMessages) << states.size();
    for (const auto& [file, sum] : states)  // residuals
      EXPECT_EQ(snapshot(folder_ / checkpoint(name + "-killed", 8))[file], sum) << file;
  }
};

}  // namespace laconic
