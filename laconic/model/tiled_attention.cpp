#include "laconic/model/tiled_attention.hpp"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>

#include "laconic/model/kernel/elementwise.hpp"

namespace laconic::tiled {

namespace {

using at::Tensor;
using kernel::DropoutRule;
using kernel::elementwise;

// Query rows handled together: scores of one tile stay in the second-level cache, and what lies
// above the diagonal is skipped tile by tile.
constexpr std::int64_t kTile = 64;

// The columns of one head in the rows of one sample, [rows, head width], a view.
Tensor part(const Tensor& x, std::int64_t sample, std::int64_t rows, std::int64_t head,
            std::int64_t head_width) {
  return x.narrow(0, sample * rows, rows).narrow(1, head * head_width, head_width);
}

// One query head of one sample.
struct Head {
  const AttentionTask& task;
  std::int64_t sample, head;

  std::int64_t key_head() const { return head / (task.heads / task.key_heads); }
  std::int64_t length() const { return task.lengths[static_cast<std::size_t>(sample)]; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(task.head_width)); }
  Tensor of_queries(const Tensor& x) const {
    return part(x, sample, task.queries, head, task.head_width);
  }
  Tensor of_keys(const Tensor& x) const {
    return part(x, sample, task.keys, key_head(), task.head_width);
  }

  // Keys that the rows before `end` see, all together.
  std::int64_t columns(std::int64_t end) const {
    return task.is_causal ? std::min(end, length()) : length();
  }
  // What the softmax kernels call first_row.
  std::int64_t first_row(std::int64_t row, std::int64_t columns) const {
    return task.is_causal ? row : columns;
  }

  Key key() const {
    return task.probability > 0 ? task.dropout_keys[static_cast<std::size_t>(sample)] : Key{};
  }
  DropoutRule rule() const {
    return task.probability > 0 ? kernel::rule_of(task.probability) : DropoutRule{};
  }
  // Index of the first dropout word of a query row.
  std::uint64_t word(std::int64_t row) const {
    return static_cast<std::uint64_t>(((task.first_head + head) * task.drawn_queries + row) *
                                      task.drawn_keys);
  }
  template <class T>
  T* sums(const Tensor& log_sums) const {
    return log_sums.data_ptr<T>() + (sample * task.heads + head) * task.queries;
  }
};

// Calls body(sample, head) for every pair, in parallel: samples differ in length, so each thread
// gets heads of all samples. ATen calls inside skip autograd and, being in a parallel region, run
// on the one thread.
template <class Body>
void for_each_head(std::int64_t samples, std::int64_t heads, const Body& body) {
  at::parallel_for(0, samples * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    for (std::int64_t i = begin; i < end; ++i) body(i % samples, i / samples);
  });
}

template <class T>
void forward_head(const Head& head, const Tensor& all_q, const Tensor& all_k, const Tensor& all_v,
                  const Tensor& out, const Tensor& log_sums) {
  const Tensor q = head.of_queries(all_q), k = head.of_keys(all_k), v = head.of_keys(all_v);
  const Tensor o = head.of_queries(out);
  T* sums = head.sums<T>(log_sums);
  for (std::int64_t row = 0; row < head.task.queries; row += kTile) {
    const std::int64_t rows = std::min(kTile, head.task.queries - row);
    const std::int64_t columns = head.columns(row + rows);
    Tensor p = q.narrow(0, row, rows).mm(k.narrow(0, 0, columns).t());
    T* data = p.data_ptr<T>();
    elementwise<T>().causal_softmax(data, rows, columns, head.first_row(row, columns), head.scale(),
                                    sums + row);
    if (head.task.probability > 0)
      for (std::int64_t r = 0; r < rows; ++r)
        elementwise<T>().dropout_add(nullptr, data + r * columns, data + r * columns, columns,
                                     head.key(), head.word(row + r), head.rule());
    o.narrow(0, row, rows).addmm_(p, v.narrow(0, 0, columns), 0, 1);
  }
}

// Tiles go from last to first: the last one covers all columns, so with the first head of a group
// it can set dk and dv (beta = 0), and everything after adds to them.
template <class T>
void backward_head(const Head& head, bool is_first, const Tensor& all_q, const Tensor& all_k,
                   const Tensor& all_v, const Tensor& log_sums, const Tensor& d_out,
                   const Tensor& all_dq, const Tensor& all_dk, const Tensor& all_dv) {
  const Tensor q = head.of_queries(all_q), k = head.of_keys(all_k), v = head.of_keys(all_v);
  const Tensor dq = head.of_queries(all_dq), dk = head.of_keys(all_dk), dv = head.of_keys(all_dv);
  const Tensor d_o = head.of_queries(d_out);
  const T* sums = head.sums<T>(log_sums);
  const std::int64_t last = (head.task.queries - 1) / kTile * kTile;
  for (std::int64_t row = last; row >= 0; row -= kTile) {
    const std::int64_t rows = std::min(kTile, head.task.queries - row);
    const std::int64_t columns = head.columns(row + rows);
    const int beta = is_first && row == last ? 0 : 1;
    const Tensor q_tile = q.narrow(0, row, rows);
    const Tensor d_o_tile = d_o.narrow(0, row, rows);
    const Tensor k_seen = k.narrow(0, 0, columns);
    Tensor p = q_tile.mm(k_seen.t());
    Tensor ds = d_o_tile.mm(v.narrow(0, 0, columns).t());
    elementwise<T>().causal_softmax_backward(
        p.data_ptr<T>(), ds.data_ptr<T>(), rows, columns, head.first_row(row, columns),
        head.scale(), sums + row, head.key(), head.word(row),
        static_cast<std::uint64_t>(head.task.drawn_keys), head.rule());
    dv.narrow(0, 0, columns).addmm_(p.t(), d_o_tile, beta, 1);
    dk.narrow(0, 0, columns).addmm_(ds.t(), q_tile, beta, 1);
    dq.narrow(0, row, rows).addmm_(ds, k_seen, 0, 1);
  }
}

}  // namespace

void attention_forward(const AttentionTask& task, const Tensor& q, const Tensor& k, const Tensor& v,
                       const Tensor& out, const Tensor& log_sums) {
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "attention", [&] {
    for_each_head(task.samples, task.heads, [&](std::int64_t sample, std::int64_t head) {
      forward_head<scalar_t>({task, sample, head}, q, k, v, out, log_sums);
    });
  });
}

void attention_backward(const AttentionTask& task, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& log_sums, const Tensor& d_out,
                        const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  const std::int64_t group = task.heads / task.key_heads;
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "attention_backward", [&] {
    for_each_head(task.samples, task.key_heads, [&](std::int64_t sample, std::int64_t key_head) {
      for (std::int64_t i = 0; i < group; ++i)
        backward_head<scalar_t>({task, sample, key_head * group + i}, i == 0, q, k, v, log_sums,
                                d_out, dq, dk, dv);
      const Head head{task, sample, key_head * group};
      const std::int64_t padding = task.keys - head.length();
      for (const Tensor& gradient : {dk, dv})
        if (padding > 0) head.of_keys(gradient).narrow(0, head.length(), padding).zero_();
    });
  });
}

}  // namespace laconic::tiled
