#include "laconic/checkpoint/collect.hpp"

#include "laconic/base/error.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/world/control_unit.hpp"

namespace laconic {

namespace {

Tag tag_of(std::uint64_t number) {
  return make_tag({.traffic = Traffic::control, .unit = kCollectUnit, .number = number});
}

at::Tensor held(const Weights& weights, const OptimiserState& optimiser, Part part,
                std::size_t place) {
  if (part == Part::value) return weights.parameters[place].value.detach();
  return (part == Part::moment1 ? optimiser.moment1 : optimiser.moment2)[place];
}

// By number: the place in the pipeline whose rank gives it.
std::vector<int> givers(const PipelinePlan& plan, const ModelSpec& spec) {
  const std::vector<int> of_block = ranks_of_blocks(plan);
  std::vector<int> givers;
  for (std::size_t p = 0; p < spec.parameters.size(); ++p)
    givers.push_back(of_block[static_cast<std::size_t>(first_user(spec, p))]);
  return givers;
}

}  // namespace

ModelSource collecting_source(World& world, const PipelinePlan& plan, const Weights& weights,
                              const OptimiserState& optimiser, std::uint64_t number) {
  const Dtype dtype = dtype_of(weights.dtype());
  return {.family = weights.family,
          .dtype = dtype,
          .tensor = [&world, &weights, &optimiser, number, dtype, from = givers(plan, weights.spec),
                     specs = weights.spec.parameters](Part part, std::size_t p) {
            if (from[p] == 0) return held(weights, optimiser, part, weights.places[p]);
            const Rank giver = world.pp_group()[static_cast<std::size_t>(from[p])];
            return tensor_from_bytes(world.engine().recv(giver, tag_of(number)), dtype,
                                     specs[p].sizes);
          }};
}

void give(World& world, const Weights& weights, const OptimiserState& optimiser,
          std::uint64_t number) {
  if (world.dp_member() != 0) return;
  for (const Part part : {Part::value, Part::moment1, Part::moment2})
    for (std::size_t i = 0; i < weights.parameters.size(); ++i) {
      if (is_copy(weights, weights.parameters[i])) continue;
      const at::Tensor tensor = on_host(held(weights, optimiser, part, i)).contiguous();
      const ByteView bytes = bytes_of_tensor(tensor);
      world.engine().send({.to = world.pp_group().front(),
                           .tag = tag_of(number),
                           .raw_bytes = bytes.size(),
                           .message = std::make_shared<const Bytes>(copy_of(bytes))});
      world.engine().flush();  // one at a time
    }
}

}  // namespace laconic
