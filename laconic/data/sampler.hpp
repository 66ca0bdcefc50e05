// data/sampler.hpp — which sample is trained on when: a pure function.
//
// A position counts the samples consumed since the start of training, over all
// ranks. It alone says which sample comes: not the number of ranks, nor how a
// batch is cut into microbatches, nor where a run was resumed. Each epoch is a
// permutation of its own.
#pragma once

#include <cstdint>

namespace laconic {

struct SampleOrder {
  std::uint64_t seed = 0;
  std::uint64_t samples = 0;
  bool shuffle = true;  // false: every epoch is 0, 1, 2, ...
};

// Requires: order.samples > 0.
std::uint64_t epoch_of(const SampleOrder& order, std::uint64_t position);
std::uint64_t sample_at(const SampleOrder& order, std::uint64_t position);

struct PositionRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool operator==(const PositionRange&) const = default;
};

// Batch b covers positions [b * size, (b + 1) * size).
PositionRange positions_of_batch(std::uint64_t batch, std::uint64_t batch_size);

}  // namespace laconic
