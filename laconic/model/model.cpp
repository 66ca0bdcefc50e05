#include "laconic/model/model.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstring>

#include "laconic/base/error.hpp"
#include "laconic/grid/overlap.hpp"
#include "laconic/model/bert.hpp"
#include "laconic/model/block_ops.hpp"
#include "laconic/model/boundary.hpp"
#include "laconic/model/gnmt.hpp"
#include "laconic/model/gpt.hpp"
#include "laconic/model/llama.hpp"
#include "laconic/model/lstm.hpp"
#include "laconic/model/seq2seq.hpp"

namespace laconic {

bool Batch::has(std::string_view name) const {
  return std::ranges::find(fields_, name, [](const auto& f) { return f.first; }) != fields_.end();
}

const at::Tensor& Batch::operator[](std::string_view name) const {
  const auto found = std::ranges::find(fields_, name, [](const auto& f) { return f.first; });
  LACONIC_ASSERT(found != fields_.end(), "the batch has no field " + std::string(name));
  return found->second;
}

std::vector<SeamTensor> sized_for(const Batch& batch, std::vector<SeamTensor> seam) {
  for (SeamTensor& tensor : seam) tensor.per_sample[0] = batch[tensor.tokens_of].size(1);
  return seam;
}

std::vector<Key> dropout_keys(std::uint64_t seed, std::optional<std::int64_t> step,
                              const std::vector<std::int64_t>& sample_ids) {
  const Key root = derive(key_of(seed), step ? "dropout" : "dropout by sample");
  const auto when = static_cast<std::uint64_t>(step.value_or(0));
  std::vector<Key> keys;
  for (const std::int64_t id : sample_ids)
    keys.push_back(derive(root, when, static_cast<std::uint64_t>(id)));
  return keys;
}

at::Tensor keys_on(at::Device device, const std::vector<Key>& keys) {
  static_assert(sizeof(Key) == 8);
  const at::Tensor host = at::empty({static_cast<std::int64_t>(keys.size()), 2},
                                    at::TensorOptions().dtype(at::kInt).pinned_memory(true));
  std::memcpy(host.data_ptr(), keys.data(), keys.size() * sizeof(Key));
  return host.to(device, at::kInt, /*non_blocking=*/true);
}

Dropout dropout_at(const Pass& pass, std::int64_t block, std::uint64_t place) {
  if (pass.dropout == 0 || pass.sample_keys.empty()) return {};
  Dropout dropout{.probability = pass.dropout,
                  .tokens = pass.dropout_tokens,
                  .parents = pass.device_keys,
                  .block = static_cast<std::uint64_t>(block),
                  .place = place};
  for (const Key key : pass.sample_keys)
    dropout.sample_keys.push_back(derive(key, static_cast<std::uint64_t>(block), place));
  return dropout;
}

StreamRows stream_rows(const at::Tensor& rows, const Batch& batch) {
  const at::Tensor& ids = batch["ids"];
  const std::int64_t first = ids.size(1) - rows.size(1);
  return {rows, ids.narrow(1, first, rows.size(1)), first};
}

namespace {

// What a block takes of a seam: the stream.
Seam lifted(const Weights& weights, std::int64_t block, const Seam& in, const Batch& batch) {
  const ProjectedSeam* seam = projection_behind(weights.spec, block - 1);
  if (seam == nullptr) return in;
  return {lift(weights, *seam, stream_rows(in[0], batch))};
}

}  // namespace

Seam forward_to_boundary(const Weights& weights, std::int64_t block, const Seam& in,
                         const Batch& batch, const Pass& pass) {
  const Seam stream = lifted(weights, block, in, batch);
  return std::visit(
      [&](const auto& shape) { return forward_block(shape, weights, block, stream, batch, pass); },
      weights.family);
}

Seam forward_block(const Weights& weights, std::int64_t block, const Seam& in, const Batch& batch,
                   const Pass& pass) {
  const Seam out = forward_to_boundary(weights, block, in, batch, pass);
  const ProjectedSeam* seam = projection_behind(weights.spec, block);
  if (seam == nullptr) return out;
  return {project(weights, *seam, stream_rows(out[0], batch))};
}

void backward(const Seam& outputs, const Seam& gradients) {
  LACONIC_ASSERT(outputs.size() == gradients.size(), std::to_string(outputs.size()) + " outputs, " +
                                                         std::to_string(gradients.size()) +
                                                         " gradients");
  torch::autograd::variable_list roots, seeds;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].requires_grad()) {
      roots.push_back(outputs[i]);
      seeds.push_back(gradients[i]);
    }
  if (!roots.empty()) torch::autograd::backward(roots, seeds);
}

double forward_loss(const Weights& weights, const Batch& batch, const Pass& pass) {
  const at::NoGradGuard no_grad;
  GridPass on_grid(pass.grid, {PassKind::evaluation, 0});
  const std::int64_t head = block_count(weights.spec) - 1;
  Seam seam;
  for (std::int64_t b = 0; b < head; ++b) seam = forward_block(weights, b, seam, batch, pass);
  if (is_causal(weights.family)) {  // x [samples, positions, width]
    const std::int64_t positions = batch["ids"].size(1), scored = batch["targets"].size(1);
    if (scored < positions) seam[0] = seam[0].narrow(1, positions - scored, scored).contiguous();
  }
  const Seam loss = forward_block(weights, head, seam, batch, pass);
  on_grid.end();
  return loss[0].item<double>();
}

at::Tensor forward_logits(const Weights& weights, const Batch& batch, const Pass& pass) {
  const at::NoGradGuard no_grad;
  GridPass on_grid(pass.grid, {PassKind::evaluation, 0});
  const std::int64_t head = block_count(weights.spec) - 1;
  Seam seam;
  for (std::int64_t b = 0; b < head; ++b) seam = forward_block(weights, b, seam, batch, pass);
  const at::Tensor x = lifted(weights, head, seam, batch)[0];  // [samples, tokens, width]
  BlockOps ops(weights, head, batch.samples(), x.size(1), pass);
  const at::Tensor logits = std::visit(
      [&](const auto& shape) { return logits_of(shape, ops, x.flatten(0, 1)); }, weights.family);
  on_grid.end();
  return logits;
}

}  // namespace laconic
