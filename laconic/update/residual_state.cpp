#include "laconic/update/residual_state.hpp"

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

constexpr char kMesh[] = "mesh";

bool is_residual(std::string_view name) {
  if (name.starts_with(kShared)) name.remove_prefix(kShared.size());
  return name.starts_with(kGradient) || name.starts_with(kMoment) || name.starts_with(kChange);
}

// Several sums may have one prefix (of shared parameters, of fragments), and tell theirs by the
// names of blocks, or, where matrices have factors, of tensors.
bool is_of(const std::vector<BlockLayout>& layouts, std::string_view name) {
  return std::ranges::any_of(layouts, [&](const BlockLayout& layout) {
    return !layout.name.empty() && !layout.tensors.empty() &&
           (name.starts_with(layout.name + ".") ||
            std::ranges::any_of(layout.tensors, [&](const NamedTensor& tensor) {
              return name.starts_with(tensor.name + ".");
            }));
  });
}

NamedFloats floats_of(const RankTensors& tensors, const std::string& prefix,
                      const std::vector<BlockLayout>& layouts) {
  NamedFloats values;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix) && is_of(layouts, name.substr(prefix.size())))
      values[name.substr(prefix.size())] = {tensor.data_ptr<float>(),
                                            tensor.data_ptr<float>() + tensor.numel()};
  return values;
}

const char* section_of(const std::string& prefix) {
  return prefix.starts_with(kShared) ? "embedding.tied" : "dp.gradient";
}

// Whether the same sum has left anything in another unit. Linear local updates have two units.
bool has_others(const std::vector<RankTensors>& saved, const std::string& prefix) {
  const bool is_shared = prefix.starts_with(kShared);
  for (const RankTensors& tensors : saved)
    for (const auto& [name, tensor] : tensors)
      if (is_residual(name) && name.starts_with(kShared) == is_shared &&
          !tensors.contains(std::string(kRenewals)))
        return true;
  return false;
}

}  // namespace

std::string_view unit_of(const RunConfig& config) {
  if (config.local.steps > 0) return kChange;
  return config.dp_gradient.method == GradientMethod::compressed_adam ? kMoment : kGradient;
}

RankTensors tensors_of(const NamedFloats& values, const std::string& prefix) {
  RankTensors tensors;
  for (const auto& [name, floats] : values)
    tensors[prefix + name] = tensor_from_bytes(as_bytes(std::span<const float>(floats)), Dtype::f32,
                                               {static_cast<std::int64_t>(floats.size())});
  return tensors;
}

bool has_residuals(const std::vector<RankTensors>& saved) {
  return std::ranges::any_of(saved, [](const RankTensors& tensors) {
    return std::ranges::any_of(tensors, [](const auto& item) { return is_residual(item.first); });
  });
}

bool has_shared_residuals(const std::vector<RankTensors>& saved) {
  return std::ranges::any_of(saved, [](const RankTensors& tensors) {
    return std::ranges::any_of(tensors,
                               [](const auto& item) { return item.first.starts_with(kShared); });
  });
}

bool has_kept(const std::vector<RankTensors>& saved) {
  return std::ranges::any_of(
      saved, [](const RankTensors& tensors) { return tensors.contains(std::string(kLateStep)); });
}

void add_mesh(const Mesh& mesh, RankTensors& tensors) {
  if (tensors.empty() || (mesh.pp == 1 && tp_size(mesh) == 1)) return;
  std::vector<std::int64_t> numbers = {mesh.pp, mesh.dp};
  if (tp_size(mesh) > 1) {
    numbers.insert(numbers.end(), mesh.tp.begin(), mesh.tp.end());
    numbers.insert(numbers.end(), mesh.order.begin(), mesh.order.end());
  }
  tensors[kMesh] = at::tensor(numbers);
}

Mesh mesh_of(const std::vector<RankTensors>& saved) {
  const int ranks = static_cast<int>(saved.size());
  Mesh mesh{.dp = ranks};
  const auto found =
      std::ranges::find_if(saved, [](const RankTensors& t) { return t.contains(kMesh); });
  if (found == saved.end()) return mesh;
  const at::Tensor& extents = found->at(kMesh);
  const bool has_grid = extents.numel() == 8;
  if (extents.scalar_type() != at::kLong || (extents.numel() != 2 && !has_grid))
    throw ConfigError(
        fmt::format("mesh of the checkpoint has {} numbers of {}, not 2 or 8 of int64",
                    extents.numel(), c10::toString(extents.scalar_type())));
  const auto number = [&](std::size_t at) {
    return static_cast<int>(extents.data_ptr<std::int64_t>()[at]);
  };
  mesh.pp = number(0);
  mesh.dp = number(1);
  for (std::size_t n = 0; has_grid && n < 3; ++n) {
    mesh.tp[n] = number(2 + n);
    mesh.order[n] = number(5 + n);
  }
  refuse(all_at("mesh of the checkpoint", check(mesh, ranks)));
  return mesh;
}

std::vector<RankTensors> those_of(const std::vector<RankTensors>& saved, const Group& ranks) {
  std::vector<RankTensors> theirs;
  for (const Rank rank : ranks) theirs.push_back(saved[static_cast<std::size_t>(rank)]);
  return theirs;
}

std::vector<RankTensors> by_replica(const std::vector<RankTensors>& saved, const Mesh& mesh,
                                    const Coord& coord) {
  std::vector<RankTensors> replicas(static_cast<std::size_t>(mesh.dp));
  for (std::size_t r = 0; r < saved.size(); ++r) {
    const Coord at = coord_of(mesh, static_cast<Rank>(r));
    if (at.tp == coord.tp)
      replicas[static_cast<std::size_t>(at.dp)].insert(saved[r].begin(), saved[r].end());
  }
  return replicas;
}

std::string load_sum(const SumState& state, const std::vector<RankTensors>& saved) {
  std::vector<NamedFloats> states;
  for (const RankTensors& tensors : saved)
    states.push_back(floats_of(tensors, state.prefix, state.layouts));
  if (std::ranges::all_of(states, [](const NamedFloats& s) { return s.empty(); }))
    return has_others(saved, state.prefix)
               ? fmt::format("residuals of the checkpoint belong to another policy of {}: dropped",
                             section_of(state.prefix))
               : "";
  try {
    const auto parts = reshard(states, state.members, state.policy, state.layouts);
    state.sum.load(parts[static_cast<std::size_t>(state.member)]);
    return "";
  } catch (const ConfigError& error) {
    return fmt::format("residuals of the checkpoint do not fit {}: dropped ({})",
                       section_of(state.prefix), error.problems().front().what);
  }
}

std::string note_of_other_mesh(const std::vector<RankTensors>& saved, const Mesh& before,
                               const Mesh& now) {
  if (!has_residuals(saved) && !has_kept(saved)) return "";
  if (before.pp != now.pp)
    return fmt::format(
        "residuals of the checkpoint are those of mesh.pp = {}, and this run has {}: dropped",
        before.pp, now.pp);
  const auto grid = [](const Mesh& mesh) { return fmt::format("{}", fmt::join(mesh.tp, " x ")); };
  return fmt::format(
      "residuals of the checkpoint are those of a grid of {}, and this run has {}: dropped",
      grid(before), grid(now));
}

bool has_same_parts(const Mesh& a, const Mesh& b) {
  return a.pp == b.pp && a.tp == b.tp;
}

}  // namespace laconic
