// cli/data_check.hpp — whether the data of a run is what it needs, without a model.
#pragma once

#include <string>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/config/run_config.hpp"

namespace laconic {

// The likeliest mistake, a wrong path: one problem for each part of the data that is not there.
Problems find_missing_data(const DataSection& data);

struct DataCheck {
  Problems problems;
  std::vector<std::string> facts;  // for people: "data.train: 13,946 tokens, 871 samples of 16"
};

// Reads all of the data, as a run does before its first step. The vocabulary of a model that comes
// from model.start is not known here: then tokens are not compared with it.
DataCheck check_data(const RunConfig& config);

}  // namespace laconic
