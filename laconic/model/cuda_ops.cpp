// The operations of model/ops.hpp on an NVIDIA GPU, with backward written by hand.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include "laconic/model/cuda.hpp"
#include "laconic/model/cuda_support.hpp"
#include "laconic/model/model.hpp"
#include "laconic/model/ops.hpp"

namespace laconic::cuda {

namespace {

using at::Tensor;
using torch::autograd::variable_list;

template <bool is_exact>
Tensor gelu_with(const Tensor& any) {
  const Tensor x = any.detach().contiguous();
  const Tensor y = gelu_of(x, is_exact ? Gelu::exact : Gelu::tanh);
  if (is_recorded({any}))
    record({any}, {y}, [x](const variable_list& g) -> variable_list {
      if (!g[0].defined()) return {Tensor()};
      const Tensor rows = x.view({-1, x.size(-1)});
      Tensor sum;  // nobody's
      return {
          gelu_backward(rows, g[0].reshape(rows.sizes()), is_exact ? Gelu::exact : Gelu::tanh, sum)
              .view(x.sizes())};
    });
  return y;
}

// Dropout as its kernel wants it: `pass` without the keys.
struct DropTask {
  Tensor keys;  // on the device
  kernel::DropoutPass pass;
};
DropTask drop_task(const Dropout& dropout, const Tensor& x) {
  const bool has_parents = dropout.parents.defined();
  const auto samples = static_cast<std::int64_t>(dropout.sample_keys.size());
  const std::int64_t elements = x.numel() / samples;
  return {has_parents ? dropout.parents : keys_on(x.device(), dropout.sample_keys),
          {.samples = samples,
           .matrices = 1,
           .rows = 1,
           .columns = elements,
           .drawn_rows = 1,
           .drawn_columns = elements,
           .keys = nullptr,
           .are_parents = has_parents,
           .block = dropout.block,
           .place = dropout.place,
           .probability = dropout.probability}};
}

Tensor dropped(const Tensor& residual, const Tensor& x, const DropTask& task) {
  Tensor out = at::empty_like(x);
  kernel::DropoutPass pass = task.pass;
  pass.keys = reinterpret_cast<const std::uint32_t*>(task.keys.data_ptr<std::int32_t>());
  kernel::dropout_add(real_of(x), residual.defined() ? residual.data_ptr() : nullptr, x.data_ptr(),
                      out.data_ptr(), pass, stream_of(x));
  check_launch();
  return out;
}

Tensor turned(const Tensor& any, const Tensor& cosines, const Tensor& sines, std::int64_t samples,
              std::int64_t heads, bool is_inverse) {
  const Tensor x = any.stride(1) == 1 && any.stride(0) % 8 == 0 ? any : any.contiguous();
  const std::int64_t rows = x.size(0);
  Tensor y = at::empty({rows, x.size(1)}, x.options().requires_grad(false));
  kernel::rotate(real_of(x), x.data_ptr(), cosines.data_ptr(), sines.data_ptr(), y.data_ptr(),
                 {rows, rows / samples, heads, x.size(1) / heads / 2, x.stride(0), is_inverse},
                 stream_of(x));
  check_launch();
  return y;
}

// Few rows, which many have: a product finds their sums faster than going from one to the next.
constexpr std::int64_t kFewRows = 64;

void add_few_rows(const Tensor& gradient, const Tensor& ids, std::int64_t rows, Tensor& sum) {
  const Tensor is_mine = ids.unsqueeze(1).eq(at::arange(rows, ids.options()));
  add_product(is_mine.to(gradient.scalar_type()), gradient, sum);
}

void add_embedding_rows(const Tensor& gradient, const Tensor& ids, const Tensor& table,
                        Tensor& sum) {
  const std::int64_t count = ids.numel(), width = table.size(1);
  if (table.size(0) <= kFewRows) return add_few_rows(gradient, ids, table.size(0), sum);
  if (!sum.defined())
    sum = at::zeros(table.sizes(), table.options().dtype(at::kFloat).requires_grad(false));
  const auto [sorted, order] = at::sort(ids, /*stable=*/true, 0, false);
  const Tensor partials = floats({count, width}, gradient);
  kernel::embedding_backward(real_of(gradient), gradient.data_ptr(),
                             sorted.data_ptr<std::int64_t>(), order.data_ptr<std::int64_t>(),
                             partials.data_ptr<float>(), sum.data_ptr<float>(), count, width,
                             stream_of(gradient));
  check_launch();
}

}  // namespace

Tensor gelu(const Tensor& x) {
  return gelu_with<false>(x);
}

Tensor exact_gelu(const Tensor& x) {
  return gelu_with<true>(x);
}

Tensor swiglu(const Tensor& any_gate, const Tensor& any_up) {
  const Tensor gate = any_gate.detach().contiguous(), up = any_up.detach().contiguous();
  const Tensor y = at::empty_like(gate);
  kernel::swiglu_forward(real_of(gate), gate.data_ptr(), up.data_ptr(), y.data_ptr(), gate.numel(),
                         stream_of(gate));
  check_launch();
  if (is_recorded({any_gate, any_up}))
    record({any_gate, any_up}, {y}, [gate, up](const variable_list& g) -> variable_list {
      if (!g[0].defined()) return {Tensor(), Tensor()};
      const Tensor gradient = g[0].contiguous();
      Tensor d_gate = at::empty_like(gate), d_up = at::empty_like(up);
      kernel::swiglu_backward(real_of(gate), gate.data_ptr(), up.data_ptr(), gradient.data_ptr(),
                              d_gate.data_ptr(), d_up.data_ptr(), gate.numel(), stream_of(gate));
      check_launch();
      return {d_gate, d_up};
    });
  return y;
}

Tensor table_rows(const Tensor& table, const Tensor& any_ids) {
  const Tensor ids = any_ids.contiguous();
  const Tensor out = at::empty({ids.numel(), table.size(1)}, table.options().requires_grad(false));
  kernel::embedding_forward(real_of(table), table.data_ptr(), ids.data_ptr<std::int64_t>(),
                            out.data_ptr(), ids.numel(), table.size(1), stream_of(table));
  check_launch();
  if (is_recorded({table}))
    record({}, {out}, [table, ids](const variable_list& g) -> variable_list {
      if (g[0].defined()) {
        Tensor leaf = table;
        add_embedding_rows(g[0].contiguous(), ids, table.detach(), leaf.mutable_grad());
      }
      return {};
    });
  return out;
}

// Requires: half a head's width is a multiple of 8.
Tensor rotate(const Tensor& x, std::int64_t samples, std::int64_t heads, const Tensor& cosines,
              const Tensor& sines) {
  const Tensor y = turned(x.detach(), cosines, sines, samples, heads, false);
  if (is_recorded({x}))
    record({x}, {y}, [=](const variable_list& g) -> variable_list {
      if (!g[0].defined()) return {Tensor()};
      return {turned(g[0], cosines, sines, samples, heads, true)};
    });
  return y;
}

Tensor drop(const Tensor& x, const Dropout& dropout) {
  DropTask task = drop_task(dropout, x);
  if (dropout.tokens > 0) {
    kernel::DropoutPass& pass = task.pass;
    pass.rows = x.size(-2);
    pass.matrices = pass.columns / (x.size(-2) * x.size(-1));
    pass.columns = x.size(-1);
    pass.drawn_rows = pass.drawn_columns = dropout.tokens;
  }
  const Tensor out = dropped({}, x.detach().contiguous(), task);
  if (is_recorded({x}))
    record({x}, {out}, [task](const variable_list& g) -> variable_list {
      return {g[0].defined() ? dropped({}, g[0].contiguous(), task) : Tensor()};
    });
  return out;
}

Tensor dropout_add(const Tensor& residual, const Tensor& x, const Dropout& dropout) {
  if (dropout.probability == 0) return residual.add(x);
  const DropTask task = drop_task(dropout, x);
  const Tensor out = dropped(residual.detach().contiguous(), x.detach().contiguous(), task);
  if (is_recorded({residual, x}))
    record({residual, x}, {out}, [task](const variable_list& g) -> variable_list {
      if (!g[0].defined()) return {Tensor(), Tensor()};
      return {g[0], dropped({}, g[0].contiguous(), task)};
    });
  return out;
}

}  // namespace laconic::cuda
