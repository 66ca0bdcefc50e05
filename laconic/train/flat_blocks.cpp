#include "laconic/train/flat_blocks.hpp"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/tensor/host.hpp"

namespace laconic {

std::vector<BlockLayout> block_layouts(const Gpt& gpt, Choose choose) {
  std::vector<BlockLayout> layouts(static_cast<std::size_t>(block_count(gpt.shape)));
  for (std::size_t b = 0; b < layouts.size(); ++b) layouts[b].name = fmt::format("block{}", b);
  for (const Parameter& p : gpt.parameters)
    if (choose(p))
      layouts[static_cast<std::size_t>(completing_block(gpt, p))].tensors.push_back(
          {p.name, spec_of(p.value)});
  return layouts;
}

FlatBlocks::FlatBlocks(const Gpt& gpt, Choose choose)
    : members_(static_cast<std::size_t>(block_count(gpt.shape))), parts_(gpt.parameters.size()) {
  const at::NoGradGuard no_grad;
  for (std::size_t p = 0; p < gpt.parameters.size(); ++p)
    if (choose(gpt.parameters[p]))
      members_[static_cast<std::size_t>(completing_block(gpt, gpt.parameters[p]))].push_back(p);
  const auto options = gpt.parameters.front().value.options().device(at::kCPU);
  for (const auto& members : members_) {
    std::int64_t elements = 0;
    for (const std::size_t p : members) elements += gpt.parameters[p].value.numel();
    buffers_.push_back(at::zeros({elements}, options.requires_grad(false)));
    std::int64_t first = 0;
    for (const std::size_t p : members) {
      const at::Tensor& value = gpt.parameters[p].value;
      parts_[p] = buffers_.back().narrow(0, first, value.numel()).view(value.sizes());
      first += value.numel();
    }
  }
}

std::byte* FlatBlocks::data(std::size_t block) const {
  return static_cast<std::byte*>(buffers_[block].data_ptr());
}

void FlatBlocks::take_gradients(const Gpt& gpt, std::size_t block) const {
  const at::NoGradGuard no_grad;
  for (const std::size_t p : members_[block]) {
    const at::Tensor& gradient = gpt.parameters[p].value.grad();
    if (gradient.defined())
      parts_[p].copy_(gradient);
    else
      parts_[p].zero_();
  }
}

void FlatBlocks::give_gradients(const Gpt& gpt) const {
  const at::NoGradGuard no_grad;
  for (std::size_t p = 0; p < gpt.parameters.size(); ++p) {
    if (!parts_[p].defined()) continue;
    at::Tensor value = gpt.parameters[p].value;
    value.mutable_grad() = parts_[p].to(value.device());  // the view itself on the CPU
  }
}

}  // namespace laconic
