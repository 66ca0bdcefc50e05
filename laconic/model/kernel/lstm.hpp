// model/kernel/lstm.hpp — one step of LSTM cells between its matrix products, and additive
// attention, on plain pointers.
//
// One pass over one row, single-threaded; callers split the work. A table of functions, as in
// kernel/elementwise.hpp.
#pragma once

#include <cstdint>

namespace laconic::kernel {

template <class T>
struct LstmCell {
  // gates: the sums [input | forget | cell | output], `cells` each, become i, f, g and o in place;
  // cell = f before + i g, out = o tanh(cell).
  void (*forward)(T* gates, const T* before, T* cell, T* out, std::int64_t cells);

  // gates: what forward left becomes the gradients of the sums, in place. d_out is that of `out`;
  // d_cell comes as the gradient of `cell` from the step after, and becomes that of `before`.
  void (*backward)(T* gates, const T* before, const T* cell, const T* d_out, T* d_cell,
                   std::int64_t cells);
};

// For T float or double, for this processor.
template <class T>
const LstmCell<T>& lstm_cell();

template <class T>
struct Additive {
  // Sum over i of v[i] tanh(q[i] + k[i]).
  T (*score)(const T* q, const T* k, const T* v, std::int64_t size);

  // Adds to the gradients, of which that of the score is d.
  void (*backward)(const T* q, const T* k, const T* v, T d, T* dq, T* dk, T* dv, std::int64_t size);
};
template <class T>
const Additive<T>& additive();

}  // namespace laconic::kernel
