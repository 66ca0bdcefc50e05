#include "laconic/update/grid_links.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/tensor/host.hpp"
#include "laconic/update/residual_state.hpp"

namespace laconic {

namespace {

constexpr std::string_view kGridPrefix = "grid.";

bool has_grid_memory(const std::vector<RankTensors>& saved) {
  return std::ranges::any_of(saved, [](const RankTensors& tensors) {
    return std::ranges::any_of(
        tensors, [](const auto& item) { return item.first.starts_with(kGridPrefix); });
  });
}

NamedFloats grid_floats(const RankTensors& tensors) {
  NamedFloats state;
  for (const auto& [name, tensor] : tensors) {
    if (!name.starts_with(kGridPrefix)) continue;
    const at::Tensor host = on_host(tensor);
    const auto* values = host.data_ptr<float>();
    state[name.substr(kGridPrefix.size())] = {values, values + host.numel()};
  }
  return state;
}

std::string restore_grid(TensorGrid& grid, const World& world,
                         const std::vector<RankTensors>& saved) {
  if (!has_grid_memory(saved)) return "";
  if (mesh_of(saved) != world.mesh())
    return fmt::format(
        "residuals and warm starts of tp.weight in the checkpoint are those of {}, and this run "
        "has {}: "
        "dropped",
        to_text(mesh_of(saved)), to_text(world.mesh()));
  grid.load(grid_floats(saved[static_cast<std::size_t>(world.rank())]));
  return "";
}

// What a class of the grid's messages can be told.
LinkControl control_of(TensorGrid& grid, Traffic traffic) {
  return {
      .traffic = traffic,
      .name = std::string(name_of(traffic)),
      .override_codec =
          [&grid, traffic](const CodecOverride& codec_override) {
            grid.override_codec(traffic, codec_override);
          },
      .measure_fidelity = [&grid, traffic](bool is_on) { grid.measure_fidelity(traffic, is_on); },
      .fidelity = [&grid, traffic] { return grid.fidelity(traffic); }};
}

}  // namespace

void add_grid_links(TensorGrid& grid, const World& world, LinkRegistry& registry) {
  registry.add(control_of(grid, Traffic::tp_activation));
  registry.add(control_of(grid, Traffic::tp_gradient));
  LinkControl weight = control_of(grid, Traffic::tp_weight);
  weight.tensors = [&grid] {
    RankTensors tensors;
    for (const auto& [name, values] : grid.save())
      tensors[std::string(kGridPrefix) + name] =
          tensor_from_bytes(as_bytes(std::span<const float>(values)), Dtype::f32,
                            {static_cast<std::int64_t>(values.size())});
    return tensors;
  };
  weight.restore = [&grid, &world](const std::vector<RankTensors>& saved) {
    return restore_grid(grid, world, saved);
  };
  registry.add(std::move(weight));
}

}  // namespace laconic
