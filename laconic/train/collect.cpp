#include "laconic/train/collect.hpp"

#include "laconic/base/error.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/train/control_unit.hpp"

namespace laconic {

namespace {

Tag tag_of(std::uint64_t number) {
  return make_tag({.traffic = Traffic::control, .unit = kCollectUnit, .number = number});
}

at::Tensor held(const Gpt& gpt, const OptimiserState& optimiser, Part part, std::size_t place) {
  if (part == Part::value) return gpt.parameters[place].value.detach();
  return (part == Part::moment1 ? optimiser.moment1 : optimiser.moment2)[place];
}

// By number: the place in the pipeline whose rank gives it.
std::vector<int> givers(const PipelinePlan& plan, const GptShape& shape) {
  std::vector<int> of_block(static_cast<std::size_t>(block_count(shape)));
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (std::int64_t b = plan.stages[s].begin; b < plan.stages[s].end; ++b)
      of_block[static_cast<std::size_t>(b)] = rank_of_stage(plan.schedule, static_cast<int>(s));
  std::vector<int> givers;
  for (std::size_t p = 0; p < parameter_specs(shape).size(); ++p)
    givers.push_back(of_block[static_cast<std::size_t>(first_block(shape, p))]);
  return givers;
}

}  // namespace

ModelSource collecting_source(World& world, const PipelinePlan& plan, const Gpt& gpt,
                              const OptimiserState& optimiser, std::uint64_t number) {
  const Dtype dtype = dtype_of(gpt.parameters.front().value.scalar_type());
  return {.shape = gpt.shape,
          .dtype = dtype,
          .tensor = [&world, &gpt, &optimiser, number, dtype, from = givers(plan, gpt.shape),
                     specs = parameter_specs(gpt.shape)](Part part, std::size_t p) {
            if (from[p] == 0) return held(gpt, optimiser, part, gpt.places[p]);
            const Rank giver = world.pp_group()[static_cast<std::size_t>(from[p])];
            return tensor_from_bytes(world.engine().recv(giver, tag_of(number)), dtype,
                                     specs[p].sizes);
          }};
}

void give(World& world, const Gpt& gpt, const OptimiserState& optimiser, std::uint64_t number) {
  if (world.dp_member() != 0) return;
  for (const Part part : {Part::value, Part::moment1, Part::moment2})
    for (std::size_t i = 0; i < gpt.parameters.size(); ++i) {
      if (is_copy(gpt, gpt.parameters[i])) continue;
      const at::Tensor tensor = on_host(held(gpt, optimiser, part, i)).contiguous();
      const ByteView bytes = bytes_of_tensor(tensor);
      world.engine().send({.to = world.pp_group().front(),
                           .tag = tag_of(number),
                           .raw_bytes = bytes.size(),
                           .message = std::make_shared<const Bytes>(copy_of(bytes))});
      world.engine().flush();  // one at a time
    }
}

}  // namespace laconic
