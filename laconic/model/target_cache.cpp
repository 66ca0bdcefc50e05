#include "laconic/model/target_cache.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "laconic/base/error.hpp"
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

void select_rows(TargetCache& cache, const at::Tensor& rows) {
  const at::NoGradGuard no_grad;
  cache.padding = cache.padding.index_select(0, rows);
  for (auto* tensors : {&cache.memory_keys, &cache.memory_values, &cache.keys, &cache.values})
    for (at::Tensor& tensor : *tensors)
      if (tensor.defined()) tensor = tensor.index_select(0, rows);
}

Seam encode_block(const Weights& weights, std::int64_t block, const Seam& in, const Batch& batch,
                  TargetCache& cache) {
  return with_shape(weights, [&](const auto& shape) {
    return encode_block(shape, weights, block, in, batch, cache);
  });
}

Seam read_block(const Weights& weights, std::int64_t block, const Seam& in, const at::Tensor& ids,
                TargetCache& cache) {
  return with_shape(weights, [&](const auto& shape) {
    return read_block(shape, weights, block, in, ids, cache);
  });
}

TargetCache encode_sources(const Weights& weights, const at::Tensor& source,
                           const at::Tensor& lengths) {
  const Batch batch{{"source", source},
                    {"source_length", lengths.view({-1, 1})},
                    {"ids", at::zeros({source.size(0), 1}, source.options())}};
  TargetCache cache = make_target_cache(weights, source, lengths);
  Seam seam;
  for (std::int64_t b = 0; b < block_count(weights.spec); ++b)
    seam = encode_block(weights, b, seam, batch, cache);
  return cache;
}

at::Tensor read_targets(const Weights& weights, const at::Tensor& ids, TargetCache& cache) {
  const std::int64_t first = with_shape(weights, [](const auto& s) { return s.layers + 1; });
  Seam seam;
  for (std::int64_t b = first; b < block_count(weights.spec); ++b)
    seam = read_block(weights, b, seam, ids, cache);
  ++cache.length;
  return seam[0];
}

}  // namespace laconic
