#include "laconic/model/decode.hpp"

#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/model/gpt.hpp"
#include "laconic/model/llama.hpp"

namespace laconic {

namespace {

template <class Shape>
concept CausalShape = requires(const Shape& shape) {
  cache_shape(shape);
};

[[noreturn]] void refuse_to_continue(const Weights& weights) {
  throw ConfigError(fmt::format("this model ({}) does not continue texts: only causal ones do",
                                to_text(weights.family)));
}

KeyValueCache cache_for(const Weights& weights) {
  const auto make = [&](const auto& shape) -> KeyValueCache {
    if constexpr (CausalShape<std::decay_t<decltype(shape)>>)
      return make_cache(cache_shape(shape), weights.compute_options());
    else
      refuse_to_continue(weights);
  };
  return std::visit(make, weights.family);
}

}  // namespace

Decoder::Decoder(const Weights& weights) : weights_(weights), cache_(cache_for(weights)) {}

at::Tensor Decoder::read(std::span<const std::int64_t> ids) {
  const auto count = static_cast<std::int64_t>(ids.size());
  LACONIC_ASSERT(count >= 1 && length() + count <= cache_.shape.context,
                 fmt::format("{} + {} tokens, context {}", length(), count, cache_.shape.context));
  const auto read = [&](const auto& shape) -> at::Tensor {
    if constexpr (CausalShape<std::decay_t<decltype(shape)>>)
      return read_tokens(shape, weights_, ids, cache_);
    else
      refuse_to_continue(weights_);
  };
  return std::visit(read, weights_.family);
}

}  // namespace laconic
