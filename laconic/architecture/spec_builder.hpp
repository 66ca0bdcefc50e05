// architecture/spec_builder.hpp — for writing a family's ModelSpec block by block.
#pragma once

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "laconic/architecture/model_spec.hpp"

namespace laconic {

inline constexpr double kDeviation = 0.02;  // what matrices and tables begin with

class SpecBuilder {
 public:
  // Takes the parameters over, and returns their numbers.
  std::vector<std::size_t> take(std::vector<ParameterSpec> parameters) {
    std::vector<std::size_t> numbers(parameters.size());
    std::iota(numbers.begin(), numbers.end(), spec_.parameters.size());
    for (ParameterSpec& p : parameters) spec_.parameters.push_back(std::move(p));
    return numbers;
  }
  void add(BlockSpec block) { spec_.blocks.push_back(std::move(block)); }
  ModelSpec finish() { return std::move(spec_); }

 private:
  ModelSpec spec_;
};

}  // namespace laconic
