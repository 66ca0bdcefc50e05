// config/checker.hpp — what the checks of a configuration's sections have in common; for check()
// (run_config.cpp) and the files check_*.cpp, one for each *_section.hpp.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "laconic/config/run_config.hpp"

namespace laconic {

// Collects problems, each under its key.
class Checker {
 public:
  void at_least(const std::string& key, std::int64_t value, std::int64_t least) {
    require(value >= least, key, fmt::format("{} = {} is below {}", leaf(key), value, least));
  }
  void at_most(const std::string& key, std::int64_t value, std::int64_t most) {
    require(value <= most, key, fmt::format("{} = {} is above {}", leaf(key), value, most));
  }
  // Also refuses NaN.
  void in_range(const std::string& key, double value, double least, double below) {
    require(value >= least && value < below, key,
            fmt::format("{} = {} is not in [{}, {})", leaf(key), value, least, below));
  }
  void require(bool holds, const std::string& key, std::string what) {
    if (!holds) problems.push_back({key, std::move(what)});
  }

  Problems problems;

 private:
  static std::string leaf(const std::string& key) { return key.substr(key.rfind('.') + 1); }
};

inline constexpr std::int64_t kMostRanks = 4096;  // along one axis
inline constexpr double kAnyLarge = std::numeric_limits<double>::infinity();

// In the order in which check() calls them, which is that of the problems in a message.
void check_run(Checker& c, const RunConfig& config);
void check_model(Checker& c, const RunConfig& config);
void check_data(Checker& c, const RunConfig& config);
void check_task(Checker& c, const RunConfig& config);
void check_train(Checker& c, const RunConfig& config);
void check_pipeline(Checker& c, const RunConfig& config);
void check_boundaries(Checker& c, const RunConfig& config);
void check_embedding_rows(Checker& c, const RunConfig& config);
void check_optimiser(Checker& c, const RunConfig& config);
void check_evaluate(Checker& c, const RunConfig& config);
void check_checkpoint(Checker& c, const RunConfig& config);
void check_network(Checker& c, const RunConfig& config);
void check_local(Checker& c, const RunConfig& config);
void check_steering(Checker& c, const RunConfig& config);

}  // namespace laconic
