// update/residual_state.hpp — what sums remember, among the tensors of a rank in a checkpoint.
//
// Names are a unit and the sum's own name for it. Residuals are in units of what
// travels (gradients, moments, changes), and of no use to a run that sends
// something else. Those of parameters that several stages share have a
// word before the unit:
//
//   gradient.block3.up    moment.block0.down    tied.gradient.embedding.up
//   late.layer.3.mlp.up.weight, with late_step: not residuals, see lateness.hpp
//
// The residuals of a stage belong to the ranks of that stage, so the mesh of the
// run is there, too, as `mesh` = [pp, dp]; files without it are of pp = 1.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/mesh/mesh.hpp"
#include "laconic/reduce/gradient_sum.hpp"
#include "laconic/runtime/link_registry.hpp"

namespace laconic {

inline constexpr std::string_view kGradient = "gradient.", kMoment = "moment.", kChange = "change.";
inline constexpr std::string_view kShared = "tied.";
// Gradients that were kept for the next step's sum, by parameter, and the step that they are of.
inline constexpr std::string_view kLate = "late.", kLateStep = "late_step";
// How often linear local updates have renewed the second moment.
inline constexpr std::string_view kRenewals = "renewals";
inline constexpr std::string_view kKeptIsDropped =
    "gradients that the checkpoint kept for the next step: nothing is late now: dropped";

std::string_view unit_of(const RunConfig& config);

RankTensors tensors_of(const NamedFloats& values, const std::string& prefix);
bool has_residuals(const std::vector<RankTensors>& saved);
// Residuals of parameters that stages share.
bool has_shared_residuals(const std::vector<RankTensors>& saved);

bool has_kept(const std::vector<RankTensors>& saved);

// Nothing where there is nothing to say: no tensors, or no pipeline.
void add_mesh(const Mesh& mesh, RankTensors& tensors);
// The mesh of the run that saved these, by rank. Throws ConfigError when it is not of so many
// ranks.
Mesh mesh_of(const std::vector<RankTensors>& saved);
// Those of these ranks.
std::vector<RankTensors> those_of(const std::vector<RankTensors>& saved, const Group& ranks);
// By replica: everything that the ranks of its pipeline saved, wherever its parts were.
std::vector<RankTensors> by_replica(const std::vector<RankTensors>& saved, const Mesh& mesh,
                                    const Coord& coord);

// Whose part of which sum's state a rank takes.
struct SumState {
  GradientSum& sum;
  const GradientPolicy policy;
  const std::vector<BlockLayout>& layouts;
  int members = 1;
  int member = 0;
  std::string prefix;  // of names: "tied.gradient."
};
// Gives the sum its part of what its group's members saved, perhaps more or fewer than now. What
// another policy left is of no use to this one: then it begins with nothing, and the note says so.
std::string load_sum(const SumState& state, const std::vector<RankTensors>& saved);
// What to say when `saved` is of `before` stages and cannot be used with `now`; empty: no loss.
std::string note_of_other_mesh(const std::vector<RankTensors>& saved, const Mesh& before,
                               const Mesh& now);
// Whether both have the same stages and the same grid, so that ranks hold the same parts.
bool has_same_parts(const Mesh& a, const Mesh& b);

}  // namespace laconic
