#include "laconic/model/target_cache.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/grid/overlap.hpp"
#include "laconic/model/block_ops.hpp"
#include "laconic/model/gnmt.hpp"
#include "laconic/model/seq2seq.hpp"

namespace laconic {

namespace {

template <class Shape>
concept WritingShape = requires(const Shape& shape) {
  shape.target_context;
};

// Calls act(shape) for families that write.
template <class Act>
auto with_shape(const Weights& weights, const Act& act) {
  using Result = decltype(act(std::get<Seq2SeqShape>(weights.family)));
  return std::visit(
      [&](const auto& shape) -> Result {
        if constexpr (WritingShape<std::decay_t<decltype(shape)>>)
          return act(shape);
        else
          throw ConfigError(
              fmt::format("this model ({}) translates nothing: only encoder-decoders do",
                          to_text(weights.family)));
      },
      weights.family);
}

}  // namespace

TargetCache make_target_cache(const Weights& weights, const at::Tensor& source,
                              const at::Tensor& lengths) {
  const std::int64_t layers =
      with_shape(weights, [](const auto& shape) { return shape.decoder_layers; });
  TargetCache cache;
  cache.padding = at::arange(source.size(1), source.options())
                      .unsqueeze(0)
                      .ge(lengths.view({-1, 1}))
                      .view({source.size(0), 1, 1, -1});
  for (auto* tensors : {&cache.memory_keys, &cache.memory_values, &cache.keys, &cache.values})
    tensors->resize(static_cast<std::size_t>(layers));
  return cache;
}

namespace {

// The same of a tensor whose dim 0 are the rows that this rank has.
at::Tensor selected(BlockOps& before, const BlockOps& after, const at::Tensor& mine,
                    const at::Tensor& rows) {
  const at::Tensor all = before.all_rows(mine.flatten(1), RowsAt::inner, 1).index_select(0, rows);
  const at::Tensor here = after.rows_of(all, RowsAt::inner);
  std::vector<std::int64_t> sizes = mine.sizes().vec();
  sizes[0] = here.size(0);
  return here.view(sizes);
}

}  // namespace

void select_rows(const Weights& weights, TargetCache& cache, const at::Tensor& rows,
                 const Pass& pass) {
  const at::NoGradGuard no_grad;
  for (auto* tensors : {&cache.memory_keys, &cache.memory_values, &cache.keys, &cache.values})
    for (std::size_t layer = 0; layer < tensors->size(); ++layer) {
      at::Tensor& tensor = (*tensors)[layer];
      if (!tensor.defined()) continue;
      const auto block = static_cast<std::int64_t>(layer);
      BlockOps before(weights, block, cache.padding.size(0), 1, pass);
      const BlockOps after(weights, block, rows.size(0), 1, pass);
      tensor = selected(before, after, tensor, rows);
    }
  cache.padding = cache.padding.index_select(0, rows);
}

Seam encode_block(const Weights& weights, std::int64_t block, const Seam& in, const Batch& batch,
                  TargetCache& cache, const Pass& pass) {
  return with_shape(weights, [&](const auto& shape) {
    return encode_block(shape, weights, block, in, batch, cache, pass);
  });
}

Seam read_block(const Weights& weights, std::int64_t block, const Seam& in, const at::Tensor& ids,
                TargetCache& cache, const Pass& pass) {
  return with_shape(weights, [&](const auto& shape) {
    return read_block(shape, weights, block, in, ids, cache, pass);
  });
}

TargetCache encode_sources(const Weights& weights, const at::Tensor& source,
                           const at::Tensor& lengths, const Pass& pass) {
  const Batch batch{{"source", source},
                    {"source_length", lengths.view({-1, 1})},
                    {"ids", at::zeros({source.size(0), 1}, source.options())}};
  TargetCache cache = make_target_cache(weights, source, lengths);
  GridPass on_grid(pass.grid, {PassKind::evaluation, 0});
  Seam seam;
  for (std::int64_t b = 0; b < block_count(weights.spec); ++b)
    seam = encode_block(weights, b, seam, batch, cache, pass);
  on_grid.end();
  return cache;
}

at::Tensor read_targets(const Weights& weights, const at::Tensor& ids, TargetCache& cache,
                        const Pass& pass) {
  const std::int64_t first = with_shape(weights, [](const auto& s) { return s.layers + 1; });
  GridPass on_grid(pass.grid, {PassKind::evaluation, first});
  Seam seam;
  for (std::int64_t b = first; b < block_count(weights.spec); ++b)
    seam = read_block(weights, b, seam, ids, cache, pass);
  on_grid.end();
  ++cache.length;
  return seam[0];
}

}  // namespace laconic
