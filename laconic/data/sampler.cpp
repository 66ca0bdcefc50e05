#include "laconic/data/sampler.hpp"

#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"

namespace laconic {

Problems check(const SampleOrder& order) {
  Problems problems;
  if (order.samples == 0) problems.push_back({"data", "an order of no samples"});
  if (order.shards == 0) problems.push_back({"data.shards", "shards = 0: there is at least one"});
  if (order.shards <= 1) return problems;
  if (order.batch == 0 || order.batch % order.shards != 0)
    problems.push_back({"data.shards", fmt::format("shards = {} does not divide a batch of {}",
                                                   order.shards, order.batch)});
  if (order.samples > 0 && order.samples < order.shards)
    problems.push_back({"data.shards", fmt::format("shards = {}, but there are only {} samples",
                                                   order.shards, order.samples)});
  return problems;
}

ShardPlace place_of(const SampleOrder& order, std::uint64_t position) {
  if (order.shards == 1) return {0, position};
  const std::uint64_t share = order.batch / order.shards;
  const std::uint64_t batch = position / order.batch, offset = position % order.batch;
  return {offset / share, batch * share + offset % share};
}

std::uint64_t shard_size(const SampleOrder& order, std::uint64_t shard) {
  return order.samples / order.shards + (shard < order.samples % order.shards ? 1 : 0);
}

std::uint64_t epoch_of(const SampleOrder& order, std::uint64_t position) {
  LACONIC_ASSERT(order.samples >= order.shards && order.shards > 0, "an order of no samples");
  const ShardPlace place = place_of(order, position);
  return place.index / shard_size(order, place.shard);
}

std::uint64_t sample_at(const SampleOrder& order, std::uint64_t position) {
  const std::uint64_t epoch = epoch_of(order, position);
  const auto [shard, index] = place_of(order, position);
  const std::uint64_t size = shard_size(order, shard);
  const Key key = derive(derive(key_of(order.seed), "epoch"), epoch, shard);
  const std::uint64_t within = order.shuffle ? permuted(key, index % size, size) : index % size;
  return within * order.shards + shard;
}

}  // namespace laconic
