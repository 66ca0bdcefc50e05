#include "laconic/update/flat_blocks.hpp"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

// Places of parameters, by the block that completes them.
std::vector<std::vector<std::size_t>> members_of(const Weights& weights,
                                                 const ParameterNumbers& left_out) {
  std::vector<std::vector<std::size_t>> members(weights.spec.blocks.size());
  for (std::size_t p = 0; p < weights.parameters.size(); ++p)
    if (!weights.parameters[p].is_frozen && !left_out.contains(weights.parameters[p].number))
      members[static_cast<std::size_t>(completing_block(weights, weights.parameters[p]))].push_back(
          p);
  return members;
}

}  // namespace

std::vector<BlockLayout> block_layouts(const Weights& weights, const ParameterNumbers& left_out) {
  const std::vector<std::vector<std::size_t>> members = members_of(weights, left_out);
  std::vector<BlockLayout> layouts(members.size());
  for (std::size_t b = 0; b < layouts.size(); ++b) {
    layouts[b].name = fmt::format("block{}", b);
    for (const std::size_t p : members[b]) {
      const Parameter& parameter = weights.parameters[p];
      layouts[b].tensors.push_back({parameter.name, sum_spec_of(weights, parameter)});
    }
  }
  return layouts;
}

FlatBlocks::FlatBlocks(const Weights& weights, const ParameterNumbers& left_out, at::Device device)
    : device_(device), members_(members_of(weights, left_out)), parts_(weights.parameters.size()) {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().dtype(weights.precision.sum).device(device);
  for (const auto& members : members_) {
    std::int64_t elements = 0;
    for (const std::size_t p : members) elements += weights.parameters[p].value.numel();
    buffers_.push_back(at::zeros({elements}, options));
    std::int64_t first = 0;
    for (const std::size_t p : members) {
      const at::Tensor& value = weights.parameters[p].value;
      parts_[p] = buffers_.back().narrow(0, first, value.numel()).view(value.sizes());
      first += value.numel();
    }
  }
}

std::byte* FlatBlocks::data(std::size_t block) const {
  return static_cast<std::byte*>(buffers_[block].data_ptr());
}

void FlatBlocks::take_gradients(const Weights& weights, std::size_t block) const {
  for (const std::size_t p : members_[block]) copy_gradient(weights.parameters[p], parts_[p]);
}

void FlatBlocks::give_gradients(Weights& weights) const {
  for (std::size_t p = 0; p < weights.parameters.size(); ++p)
    if (parts_[p].defined())
      weights.parameters[p].gradient =
          parts_[p].to(weights.device());  // the view itself on the CPU
}

TensorSpec sum_spec_of(const Weights& weights, const Parameter& parameter) {
  return {.dtype = dtype_of(weights.precision.sum), .shape = parameter.value.sizes().vec()};
}

void copy_gradient(const Parameter& parameter, const at::Tensor& into) {
  const at::NoGradGuard no_grad;
  if (parameter.gradient.defined())
    into.copy_(parameter.gradient);
  else
    into.zero_();
}

}  // namespace laconic
