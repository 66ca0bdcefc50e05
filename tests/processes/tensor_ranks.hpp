// tests/processes/tensor_ranks.hpp — runs on tensor grids, every rank a process.
#pragma once

#include <string>
#include <vector>

#include "tests/processes/workplace.hpp"

namespace laconic {

using Sets = std::vector<std::string>;  // values of --set

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
};

}  // namespace laconic
