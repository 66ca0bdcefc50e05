// cli/layout_report.hpp — what a grid does to a model, as text, pictures and JSON. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/layout/grid_plan.hpp"
#include "laconic/layout/layout_picture.hpp"
#include "laconic/policy/grid_policy.hpp"

namespace laconic {

struct LayoutSubject {
  std::string name;  // of the model: "GPT, 6 layers, ..."
  ModelSpec spec;
  GridPlan plan;
  Mesh mesh;                 // tp and order alone
  std::int64_t samples = 1;  // of a microbatch
  std::int64_t tokens = 1;   // of a sample
  GridPolicy policy = {};    // whose sums may be gathered
};

// Who is where in the grid, both kinds of activations, and each kind of parameter.
std::vector<LayoutPicture> pictures_of(const LayoutSubject& subject);

std::string describe(const LayoutSubject& subject);
nlohmann::ordered_json to_json(const LayoutSubject& subject);

}  // namespace laconic
