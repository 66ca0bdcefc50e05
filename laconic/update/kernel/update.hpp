// update/kernel/update.hpp — the two passes over gradients that a step needs, on plain pointers.
//
// One reads the gradients once (their norm), the other reads and writes
// parameter, gradient and moments once (the update): nothing else in a step
// touches them. Single-threaded; callers split the work in chunks.
#pragma once

#include <cstdint>

namespace laconic::kernel {

struct AdamWRule {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;    // decoupled: p -= lr * decay * p
  double correction1 = 1;     // 1 - beta1^t
  double correction2 = 1;     // 1 - beta2^t
  double gradient_scale = 1;  // clipping happens here, in passing
};

template <class T>
struct Update {
  void (*adamw)(T* parameter, const T* gradient, T* moment1, T* moment2, std::int64_t size,
                const AdamWRule& rule);
  // In double, whatever T; the order of summation depends on the instruction set alone.
  double (*sum_of_squares)(const T* x, std::int64_t size);
};

template <class T>
const Update<T>& update();

}  // namespace laconic::kernel
