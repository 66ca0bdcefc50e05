#include "laconic/model/decode.hpp"

#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/model/gpt.hpp"
#include "laconic/model/llama.hpp"

namespace laconic {

Decoder::Decoder(const Weights& weights)
    : weights_(weights),
      cache_(std::visit(
          [&](const auto& shape) {
            return make_cache(cache_shape(shape),
                              weights.parameters.front().value.options().requires_grad(false));
          },
          weights.family)) {}

at::Tensor Decoder::read(std::span<const std::int64_t> ids) {
  const auto count = static_cast<std::int64_t>(ids.size());
  LACONIC_ASSERT(count >= 1 && length() + count <= cache_.shape.context,
                 fmt::format("{} + {} tokens, context {}", length(), count, cache_.shape.context));
  return std::visit([&](const auto& shape) { return read_tokens(shape, weights_, ids, cache_); },
                    weights_.family);
}

}  // namespace laconic
