// The operations of model/ops.hpp as single passes on the CPU, with backward written by hand.
//
// The only file that includes libtorch's custom_function.h, which costs nine seconds to compile;
// linear.cpp, whose backward is written by hand too, does with less.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "laconic/base/error.hpp"
#include "laconic/base/target.hpp"
#include "laconic/model/kernel/elementwise.hpp"
#include "laconic/model/linear.hpp"
#include "laconic/model/ops.hpp"

namespace laconic::fused {

namespace {

using at::Tensor;
using kernel::DropoutRule;
using kernel::elementwise;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Elements per task: large enough that starting it is nothing, small enough to share evenly.
constexpr std::int64_t kGrain = 1 << 14;
// Query rows handled together by attention: scores of one tile stay in the second-level cache, and
// what lies above the diagonal is skipped tile by tile.
constexpr std::int64_t kTile = 64;

DropoutRule rule_of(double probability) {
  return {static_cast<std::uint32_t>(std::ldexp(probability, 32)), 1 / (1 - probability)};
}

// Autograd keeps only tensors and simple values between forward and backward.
std::vector<std::int64_t> packed(const std::vector<Key>& keys) {
  std::vector<std::int64_t> numbers;
  for (const Key key : keys)
    numbers.push_back(static_cast<std::int64_t>(std::uint64_t{key.hi} << 32 | key.lo));
  return numbers;
}
Key unpacked(std::int64_t number) {
  return key_of(static_cast<std::uint64_t>(number));
}

struct GeluFunction : torch::autograd::Function<GeluFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input) {
    const Tensor x = input.contiguous();
    Tensor y = x.new_empty(x.sizes());
    context->save_for_backward({x});
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gelu", [&] {
      const auto* from = x.data_ptr<scalar_t>();
      auto* to = y.data_ptr<scalar_t>();
      at::parallel_for(0, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        elementwise<scalar_t>().gelu(from + begin, to + begin, end - begin);
      });
    });
    return y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const Tensor x = context->get_saved_variables()[0];
    const Tensor dy = gradients[0].contiguous();
    Tensor dx = x.new_empty(x.sizes());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gelu_backward", [&] {
      const auto* from = x.data_ptr<scalar_t>();
      const auto* above = dy.data_ptr<scalar_t>();
      auto* to = dx.data_ptr<scalar_t>();
      at::parallel_for(0, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        elementwise<scalar_t>().gelu_backward(from + begin, above + begin, to + begin, end - begin);
      });
    });
    return {dx};
  }
};

// out = residual + dropout(x), sample by sample; residual may be undefined.
void apply_dropout(const Tensor& residual, const Tensor& x, Tensor& out,
                   const std::vector<std::int64_t>& keys, double probability) {
  const auto samples = static_cast<std::int64_t>(keys.size());
  const std::int64_t elements = x.numel() / samples;
  const std::int64_t pieces = (elements + kGrain - 1) / kGrain;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "dropout_add", [&] {
    const auto* base = residual.defined() ? residual.data_ptr<scalar_t>() : nullptr;
    const auto* from = x.data_ptr<scalar_t>();
    auto* to = out.data_ptr<scalar_t>();
    at::parallel_for(0, samples * pieces, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t sample = task / pieces;
        const std::int64_t first = task % pieces * kGrain;
        const std::int64_t at = sample * elements + first;
        elementwise<scalar_t>().dropout_add(
            base ? base + at : nullptr, from + at, to + at, std::min(kGrain, elements - first),
            unpacked(keys[static_cast<std::size_t>(sample)]), static_cast<std::uint64_t>(first),
            rule_of(probability));
      }
    });
  });
}

struct DropoutAddFunction : torch::autograd::Function<DropoutAddFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& residual, const Tensor& x,
                        const std::vector<std::int64_t>& keys, double probability) {
    Tensor out = x.new_empty(x.sizes());
    apply_dropout(residual.contiguous(), x.contiguous(), out, keys, probability);
    context->saved_data["keys"] = keys;
    context->saved_data["probability"] = probability;
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const Tensor dy = gradients[0].contiguous();
    Tensor dx = dy.new_empty(dy.sizes());
    apply_dropout({}, dy, dx, context->saved_data["keys"].toIntVector(),
                  context->saved_data["probability"].toDouble());
    return {dy, dx, {}, {}};
  }
};

// What both directions of attention know about their work: sizes, and where each head's q, k and v
// lie inside the rows of qkv.
struct HeadLayout {
  std::int64_t samples, tokens, heads, head_width;

  std::int64_t width() const { return heads * head_width; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(head_width)); }

  // Columns of part 0, 1, 2 (q, k, v) of one head of one sample: [tokens, head width], a view.
  Tensor part(const Tensor& qkv, std::int64_t sample, std::int64_t head, int which) const {
    return qkv.narrow(0, sample * tokens, tokens)
        .narrow(1, which * width() + head * head_width, head_width);
  }
  Tensor output(const Tensor& out, std::int64_t sample, std::int64_t head) const {
    return out.narrow(0, sample * tokens, tokens).narrow(1, head * head_width, head_width);
  }
  // Index of the first dropout word of a query row.
  std::uint64_t word(std::int64_t head, std::int64_t row) const {
    return static_cast<std::uint64_t>((head * tokens + row) * tokens);
  }
};

// Calls body(sample, head) for every pair, in parallel. ATen calls inside skip autograd and, being
// in a parallel region, run on the one thread.
template <class Body>
void for_each_head(const HeadLayout& layout, const Body& body) {
  at::parallel_for(0, layout.samples * layout.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    for (std::int64_t task = begin; task < end; ++task)
      body(task / layout.heads, task % layout.heads);
  });
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, std::int64_t samples,
                        std::int64_t heads, const std::vector<std::int64_t>& keys,
                        double probability) {
    const Tensor qkv = input.contiguous();
    const HeadLayout layout{samples, qkv.size(0) / samples, heads, qkv.size(1) / 3 / heads};
    Tensor out = qkv.new_empty({qkv.size(0), layout.width()});
    Tensor log_sums = qkv.new_empty({samples, heads, layout.tokens});
    AT_DISPATCH_FLOATING_TYPES(qkv.scalar_type(), "attention", [&] {
      for_each_head(layout, [&](std::int64_t sample, std::int64_t head) {
        const Key key = probability > 0 ? unpacked(keys[static_cast<std::size_t>(sample)]) : Key{};
        forward_head<scalar_t>(layout, qkv, out, log_sums, sample, head, key, probability);
      });
    });
    context->save_for_backward({qkv, log_sums});
    context->saved_data["heads"] = heads;
    context->saved_data["keys"] = keys;
    context->saved_data["probability"] = probability;
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor& qkv = saved[0];
    const Tensor& log_sums = saved[1];
    const Tensor d_out = gradients[0].contiguous();
    const auto keys = context->saved_data["keys"].toIntVector();
    const double probability = context->saved_data["probability"].toDouble();
    const HeadLayout layout{log_sums.size(0), log_sums.size(2), log_sums.size(1),
                            qkv.size(1) / 3 / log_sums.size(1)};
    Tensor d_qkv = qkv.new_empty(qkv.sizes());
    AT_DISPATCH_FLOATING_TYPES(qkv.scalar_type(), "attention_backward", [&] {
      for_each_head(layout, [&](std::int64_t sample, std::int64_t head) {
        const Key key = probability > 0 ? unpacked(keys[static_cast<std::size_t>(sample)]) : Key{};
        backward_head<scalar_t>(layout, qkv, log_sums, d_out, d_qkv, sample, head, key,
                                probability);
      });
    });
    return {d_qkv, {}, {}, {}, {}};
  }

 private:
  template <class T>
  static void forward_head(const HeadLayout& layout, const Tensor& qkv, const Tensor& out,
                           const Tensor& log_sums, std::int64_t sample, std::int64_t head, Key key,
                           double probability) {
    const Tensor q = layout.part(qkv, sample, head, 0);
    const Tensor k = layout.part(qkv, sample, head, 1);
    const Tensor v = layout.part(qkv, sample, head, 2);
    Tensor o = layout.output(out, sample, head);
    T* sums = log_sums.data_ptr<T>() + (sample * layout.heads + head) * layout.tokens;
    for (std::int64_t row = 0; row < layout.tokens; row += kTile) {
      const std::int64_t rows = std::min(kTile, layout.tokens - row);
      const std::int64_t columns = row + rows;
      Tensor p = q.narrow(0, row, rows).mm(k.narrow(0, 0, columns).t());
      T* data = p.data_ptr<T>();
      elementwise<T>().causal_softmax(data, rows, columns, row, layout.scale(), sums + row);
      if (probability > 0)
        for (std::int64_t r = 0; r < rows; ++r)
          elementwise<T>().dropout_add(nullptr, data + r * columns, data + r * columns, columns,
                                       key, layout.word(head, row + r), rule_of(probability));
      o.narrow(0, row, rows).addmm_(p, v.narrow(0, 0, columns), 0, 1);
    }
  }

  // Tiles go from last to first: the last one covers all columns, so it can set dk and dv (beta =
  // 0) and the others add to them.
  template <class T>
  static void backward_head(const HeadLayout& layout, const Tensor& qkv, const Tensor& log_sums,
                            const Tensor& d_out, const Tensor& d_qkv, std::int64_t sample,
                            std::int64_t head, Key key, double probability) {
    const Tensor q = layout.part(qkv, sample, head, 0);
    const Tensor k = layout.part(qkv, sample, head, 1);
    const Tensor v = layout.part(qkv, sample, head, 2);
    const Tensor d_o = layout.output(d_out, sample, head);
    const Tensor dq = layout.part(d_qkv, sample, head, 0);
    const Tensor dk = layout.part(d_qkv, sample, head, 1);
    const Tensor dv = layout.part(d_qkv, sample, head, 2);
    const T* sums = log_sums.data_ptr<T>() + (sample * layout.heads + head) * layout.tokens;
    const DropoutRule rule = probability > 0 ? rule_of(probability) : DropoutRule{};
    for (std::int64_t row = (layout.tokens - 1) / kTile * kTile; row >= 0; row -= kTile) {
      const std::int64_t rows = std::min(kTile, layout.tokens - row);
      const std::int64_t columns = row + rows;
      const int beta = columns == layout.tokens ? 0 : 1;
      const Tensor q_tile = q.narrow(0, row, rows);
      const Tensor d_o_tile = d_o.narrow(0, row, rows);
      const Tensor k_seen = k.narrow(0, 0, columns);
      Tensor p = q_tile.mm(k_seen.t());
      Tensor ds = d_o_tile.mm(v.narrow(0, 0, columns).t());
      elementwise<T>().causal_softmax_backward(
          p.data_ptr<T>(), ds.data_ptr<T>(), rows, columns, row, layout.scale(), sums + row, key,
          layout.word(head, row), static_cast<std::uint64_t>(layout.tokens), rule);
      dv.narrow(0, 0, columns).addmm_(p.t(), d_o_tile, beta, 1);
      dk.narrow(0, 0, columns).addmm_(ds.t(), q_tile, beta, 1);
      dq.narrow(0, row, rows).addmm_(ds, k_seen, 0, 1);
    }
  }
};

// From the logits on, [rows, vocabulary]. The caller gives them away: backward turns these very
// numbers into their gradients, and the product that they come from does not need them.
struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& any_targets) {
    const Tensor targets = any_targets.contiguous();
    const std::int64_t rows = logits.size(0), vocabulary = logits.size(1);
    Tensor log_sums = logits.new_empty({rows});
    Tensor loss = logits.new_empty({});
    AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "cross_entropy", [&] {
      const auto* data = logits.data_ptr<scalar_t>();
      auto* sums = log_sums.data_ptr<scalar_t>();
      const auto* target = targets.data_ptr<std::int64_t>();
      at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          sums[r] = target[r] == kNoTarget
                        ? scalar_t(0)
                        : elementwise<scalar_t>().log_sum_exp(data + r * vocabulary, vocabulary);
      });
      double total = 0;  // in row order, whatever the number of threads
      for (std::int64_t r = 0; r < rows; ++r) {
        if (target[r] == kNoTarget) continue;
        LACONIC_ASSERT(target[r] >= 0 && target[r] < vocabulary,
                       "target " + std::to_string(target[r]) + " of " + std::to_string(vocabulary));
        total += static_cast<double>(sums[r] - data[r * vocabulary + target[r]]);
      }
      *loss.data_ptr<scalar_t>() = static_cast<scalar_t>(total / static_cast<double>(rows));
    });
    context->save_for_backward({targets, log_sums});
    context->saved_data["logits"] = logits.detach();  // a saved variable could not be given away
    return loss;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &targets = saved[0], &log_sums = saved[1];
    Tensor logits = context->saved_data["logits"].toTensor();
    LACONIC_ASSERT(logits.defined(), "backward through the loss ran twice");
    context->saved_data["logits"] = Tensor();
    const std::int64_t rows = logits.size(0), vocabulary = logits.size(1);
    const double scale = gradients[0].item<double>() / static_cast<double>(rows);
    AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "cross_entropy_backward", [&] {
      auto* data = logits.data_ptr<scalar_t>();
      const auto* sums = log_sums.data_ptr<scalar_t>();
      const auto* target = targets.data_ptr<std::int64_t>();
      at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          scalar_t* row = data + r * vocabulary;
          if (target[r] == kNoTarget)
            std::fill(row, row + vocabulary, scalar_t(0));
          else
            elementwise<scalar_t>().cross_entropy_backward(row, vocabulary, sums[r], target[r],
                                                           static_cast<scalar_t>(scale));
        }
      });
    });
    return {logits, {}};
  }
};

}  // namespace

Tensor gelu(const Tensor& x) {
  return GeluFunction::apply(x);
}

Tensor dropout_add(const Tensor& residual, const Tensor& x, const Dropout& dropout) {
  if (dropout.probability == 0) return residual.add(x);
  return DropoutAddFunction::apply(residual, x, packed(dropout.sample_keys), dropout.probability);
}

Tensor causal_attention(const Tensor& qkv, std::int64_t samples, std::int64_t heads,
                        const Dropout& dropout) {
  return AttentionFunction::apply(qkv, samples, heads, packed(dropout.sample_keys),
                                  dropout.probability);
}

Tensor cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const Tensor& targets, DeferredWeights* deferred, double) {
  return CrossEntropyFunction::apply(transposed_linear(x, weight, bias, deferred), targets);
}

}  // namespace laconic::fused
