#include "laconic/model/decode.hpp"

#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/grid/overlap.hpp"
#include "laconic/model/gpt.hpp"
#include "laconic/model/llama.hpp"

namespace laconic {

namespace {

template <class Shape>
concept CausalShape = requires(const Shape& shape, const Weights& weights, const Pass& pass) {
  make_text_cache(shape, weights, pass);
};

[[noreturn]] void refuse_to_continue(const Weights& weights) {
  throw ConfigError(fmt::format("this model ({}) does not continue texts: only causal ones do",
                                to_text(weights.family)));
}

using TextCache = std::variant<KeyValueCache, LstmCache>;

TextCache cache_for(const Weights& weights, const Pass& pass) {
  const auto make = [&](const auto& shape) -> TextCache {
    if constexpr (CausalShape<std::decay_t<decltype(shape)>>)
      return make_text_cache(shape, weights, pass);
    else
      refuse_to_continue(weights);
  };
  return std::visit(make, weights.family);
}

}  // namespace

Decoder::Decoder(const Weights& weights, TensorGrid* grid)
    : weights_(weights), pass_{.grid = grid}, cache_(cache_for(weights, pass_)) {}

at::Tensor Decoder::read(std::span<const std::int64_t> ids) {
  const auto count = static_cast<std::int64_t>(ids.size());
  LACONIC_ASSERT(
      count >= 1 && length() + count <= context_of(weights_.family),
      fmt::format("{} + {} tokens, context {}", length(), count, context_of(weights_.family)));
  const auto read = [&](const auto& shape) -> at::Tensor {
    if constexpr (CausalShape<std::decay_t<decltype(shape)>>) {
      using Cache = decltype(make_text_cache(shape, weights_, pass_));
      return read_tokens(shape, weights_, ids, std::get<Cache>(cache_), pass_);
    } else {
      refuse_to_continue(weights_);
    }
  };
  GridPass on_grid(pass_.grid, {PassKind::evaluation, 0});
  const at::Tensor logits = std::visit(read, weights_.family);
  on_grid.end();
  return logits;
}

}  // namespace laconic
