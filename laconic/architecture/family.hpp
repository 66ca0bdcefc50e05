// architecture/family.hpp — which kind of model, and how large: a value.
//
// A family is one of a closed set of shapes: std::visit finds what was forgotten.
// docs/architecture.md says how to add one. Beside this folder and laconic/model only
// whoever reads the configuration (checkpoint/resume.cpp) knows families by name.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "laconic/base/problem.hpp"

namespace laconic {

struct GptShape {
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t context = 0;  // positions; a sample may have fewer tokens
  std::int64_t vocabulary = 0;
  double norm_epsilon = 1e-5;
  bool operator==(const GptShape&) const = default;
};

using Family = std::variant<GptShape>;

std::int64_t context_of(const Family& family);     // the longest sample, in tokens
std::int64_t vocabulary_of(const Family& family);  // token ids are below this

// "GPT, 6 layers, width 384, 6 heads"
std::string to_text(const Family& family);

// Sizes by their key in the section [model] of a configuration: {"layers", 6}.
std::vector<std::pair<std::string, std::int64_t>> sizes_of(const Family& family);

// Messages have a number for each block, and a model that nobody can run must not be spelled out.
inline constexpr std::int64_t kMostLayers = 4094;
// Every size that no model can have here.
Problems check(const Family& family);

// Every size in which `found` is not what the run asks for. `folder` says where it was found.
Problems compare(const Family& found, const Family& wanted, const std::string& folder);

}  // namespace laconic
