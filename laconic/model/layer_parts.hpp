// model/layer_parts.hpp — where the parameters of a block stand, handed out one after the other.
#pragma once

#include <cstddef>

#include "laconic/model/block_ops.hpp"

namespace laconic {

// Hands out places in the order of BlockSpec::uses.
class LeafReader {
 public:
  std::size_t tensor() { return next_++; }
  MapAt linear() {
    const std::size_t weight = next_;
    next_ += 2;
    return {weight, weight + 1};
  }
  // A map whose bias may be missing.
  MapAt linear(bool has_bias) {
    if (has_bias) return linear();
    return {next_++, {}};
  }
  NormAt norm() {
    const std::size_t weight = next_;
    next_ += 2;
    return {weight, weight + 1};
  }

 private:
  std::size_t next_ = 0;
};

}  // namespace laconic
