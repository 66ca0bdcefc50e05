// update/kernel/update.hpp — the passes over gradients that a step needs, on plain pointers.
//
// One reads the gradients once (their norm), the other reads and writes
// parameter, gradient and moments once (the update): nothing else in a step
// touches them. Single-threaded; callers split the work in chunks. An element's result depends
// on nothing but itself: neither on its neighbours nor on the instruction set.
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

struct SgdRule {
  double lr = 0;
  double momentum = 0;
  double weight_decay = 0;  // a part of the gradient
  bool nesterov = false;
  double gradient_scale = 1;
};

struct LionRule {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double weight_decay = 0;  // decoupled
  double gradient_scale = 1;
};

template <class T>
struct Update {
  void (*adamw)(T* parameter, const T* gradient, T* moment1, T* moment2, std::int64_t size,
                const AdamWRule& rule);
  // The same with the decay as a part of the gradient: g += decay * p.
  void (*adam)(T* parameter, const T* gradient, T* moment1, T* moment2, std::int64_t size,
               const AdamWRule& rule);
  void (*sgd)(T* parameter, const T* gradient, T* moment, std::int64_t size, const SgdRule& rule);
  void (*lion)(T* parameter, const T* gradient, T* moment, std::int64_t size, const LionRule& rule);
  // In double, whatever T; the order of summation depends on the instruction set alone.
  double (*sum_of_squares)(const T* x, std::int64_t size);
};

template <class T>
const Update<T>& update();

}  // namespace laconic::kernel
