// codec/choice.hpp — which elements random_k keeps: a pure function of the seed and two numbers.
//
// Everyone who knows the seed finds the same choice, so it never travels. It
// takes a bit of memory per element of the tensor.
#pragma once

#include <cstdint>

#include "laconic/codec/largest.hpp"

namespace laconic {

class Choice {
 public:
  // Requires: k <= elements.
  Choice(std::uint64_t seed, std::uint64_t elements, std::uint64_t k);

  // values[j] = x[the j-th kept index], and the other way round.
  void gather(const float* x, float* values) const;
  void scatter(const float* values, float* x) const;

 private:
  // use(indices, count) for batches of kept indices, rising.
  template <class Use>
  void for_each_batch(const Use& use) const;
  template <std::size_t kAtOnce, class Use>
  void for_each_batch_of(const Use& use) const;

  Scratch<std::uint64_t> kept_;  // bit i mod 64 of word i / 64
  bool is_sparse_;               // hardly a word has more than two bits
};

}  // namespace laconic
