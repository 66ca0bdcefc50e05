#include "laconic/config/projection_choice.hpp"

#include <fmt/format.h>

#include "laconic/config/checker.hpp"
#include "laconic/config/grid_choice.hpp"

namespace laconic {

namespace {

// Parameters that nobody changes are in no sum.
void check_frozen(Checker& c, const RunConfig& config, const std::string& what) {
  c.require(
      config.local.steps == 0, "local.steps",
      fmt::format("{} with {}: rounds average all parameters, and one that is frozen is in no "
                  "sum; take basis \"seed\" and another anchor",
                  config.local.steps, what));
  c.require(
      config.dp_gradient.method != GradientMethod::compressed_adam || config.mesh.dp == 1,
      "dp.gradient.method",
      fmt::format("compressed_adam with {}: it sums moments of all parameters, and one that is "
                  "frozen has none; take basis \"seed\" and another anchor",
                  what));
}

// By a step of up to about half a basis can be made orthonormal again (update/spel.hpp), and it
// goes by a tenth of the rate.
constexpr double kLargestRate = 4;

// Directions that change from step to step.
void check_memories(Checker& c, const RunConfig& config, BasisKind basis) {
  for (const auto& [key, memory] : {std::pair{"pp.activation.memory", config.pp_activation.memory},
                                    {"pp.gradient.memory", config.pp_gradient.memory}})
    c.require(memory != LinkMemory::delta || config.mesh.pp == 1, key,
              fmt::format("\"delta\" with boundaries of basis \"{}\": what a sample was last time "
                          "is remembered in directions that have changed since; take {}",
                          name_in(kBasisKindNames, basis),
                          is_code(basis) ? "memory \"none\"" : "basis \"seed\""));
}

void check_changing_basis(Checker& c, const RunConfig& config) {
  c.require(config.local.steps == 0, "local.steps",
            fmt::format("{} with model.project_basis = \"learned\": a mean of orthonormal rows is "
                        "not orthonormal; take basis \"seed\"",
                        config.local.steps));
  c.require(
      config.dp_gradient.method != GradientMethod::compressed_adam || config.mesh.dp == 1,
      "dp.gradient.method",
      "compressed_adam with model.project_basis = \"learned\": it sums first moments of Adam, "
      "and a basis has another optimiser; take basis \"seed\"");
  c.require(config.optimiser.lr <= kLargestRate, "optimiser.lr",
            fmt::format("lr = {} with model.project_basis = \"learned\": rows that turn by a tenth "
                        "of it are not made orthonormal again above {}; take basis \"seed\"",
                        config.optimiser.lr, kLargestRate));
}

}  // namespace

Problems check_projected(const RunConfig& config, const Family& family) {
  const Projection projection = projection_of(family);
  if (projection.is_empty()) return {};
  Checker c;
  const GridPlan grid =
      check_grid_texts(config).empty() ? grid_plan_of(config, family) : GridPlan();
  // With 1d every rank has the whole stream, and makes whole codes of it.
  const bool has_parts =
      !is_trivial(grid) && !(grid.method == TensorMethod::one_d && is_code(projection.basis));
  c.require(
      !has_parts, "mesh.tp",
      fmt::format("a tensor grid of method \"{}\" with projected boundaries (behind layers {}, "
                  "basis {}): its ranks have a part of the stream each, and c would be a sum over "
                  "them, which is not built; use mesh.dp and mesh.pp, or 1d with maps",
                  name_of(grid.method), layer_list(projection.after),
                  name_in(kBasisKindNames, projection.basis)));
  if (projection.basis == BasisKind::learned || is_code(projection.basis))
    check_memories(c, config, projection.basis);
  if (projection.basis == BasisKind::learned)
    check_changing_basis(c, config);
  else if (projection.basis == BasisKind::pca)
    check_frozen(c, config, "model.project_basis = \"pca\"");
  else if (projection.anchor == AnchorKind::initial)
    check_frozen(c, config, "model.project_anchor = \"initial\"");
  return c.problems;
}

}  // namespace laconic
