// data/sampler.hpp — which sample is trained on when: a pure function.
//
// A position counts the samples consumed since the start of training, over all
// ranks. It alone says which sample comes: not the number of ranks, nor how a
// batch is cut into microbatches, nor where a run was resumed. Each epoch is a
// permutation of its own.
//
// With shards, sample i belongs to shard i % shards for good, and every batch
// is made of equal runs of each shard, in their order:
//
//     batch of 6, 3 shards:   0 0 1 1 2 2 | 0 0 1 1 2 2 | ...
//
// Ranks that each take a contiguous part of every batch thus see the same
// shards, hence the same samples, in every epoch, as long as their number
// divides the number of shards. Shards are shuffled and repeat each by itself:
// where their sizes differ, by one sample then, so do the ends of their epochs.
#pragma once

#include <cstdint>

#include "laconic/base/problem.hpp"

namespace laconic {

struct SampleOrder {
  std::uint64_t seed = 0;
  std::uint64_t samples = 0;
  bool shuffle = true;  // false: every epoch of a shard is in ascending order
  std::uint64_t shards = 1;
  std::uint64_t batch = 0;  // samples of a batch; with one shard it does not matter
};

// Every reason why there is no such order (none without samples; shards must divide the batch, and
// none may be empty).
Problems check(const SampleOrder& order);

// Where a position falls: `index` counts the samples that were taken from the shard before.
struct ShardPlace {
  std::uint64_t shard = 0;
  std::uint64_t index = 0;
  bool operator==(const ShardPlace&) const = default;
};

// Requires, for all of them: check(order) is empty.
ShardPlace place_of(const SampleOrder& order, std::uint64_t position);
std::uint64_t shard_size(const SampleOrder& order, std::uint64_t shard);
std::uint64_t epoch_of(const SampleOrder& order, std::uint64_t position);  // of its shard
std::uint64_t sample_at(const SampleOrder& order, std::uint64_t position);

}  // namespace laconic
