#include "laconic/data/sampler.hpp"

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"

namespace laconic {

std::uint64_t epoch_of(const SampleOrder& order, std::uint64_t position) {
  LACONIC_ASSERT(order.samples > 0, "an order of no samples");
  return position / order.samples;
}

std::uint64_t sample_at(const SampleOrder& order, std::uint64_t position) {
  const std::uint64_t epoch = epoch_of(order, position);
  const std::uint64_t index = position % order.samples;
  if (!order.shuffle) return index;
  const Key key = derive(derive(key_of(order.seed), "epoch"), epoch);
  return permuted(key, index, order.samples);
}

PositionRange positions_of_batch(std::uint64_t batch, std::uint64_t batch_size) {
  return {batch * batch_size, (batch + 1) * batch_size};
}

}  // namespace laconic
