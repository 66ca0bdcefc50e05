// The operations of model/ops.hpp as single passes on the CPU, with backward written by hand.
//
// The only file that includes libtorch's custom_function.h, which costs nine seconds to compile;
// linear.cpp, whose backward is written by hand too, does with less.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/base/target.hpp"
#include "laconic/model/kernel/elementwise.hpp"
#include "laconic/model/linear.hpp"
#include "laconic/model/ops.hpp"
#include "laconic/model/tiled_attention.hpp"

namespace laconic::fused {

namespace {

using at::Tensor;
using kernel::elementwise;
using kernel::rule_of;
using tiled::AttentionTask;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Elements per task: large enough that starting it is nothing, small enough to share evenly.
constexpr std::int64_t kGrain = 1 << 14;

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

std::vector<Key> unpacked(const std::vector<std::int64_t>& numbers) {
  std::vector<Key> keys;
  for (const std::int64_t number : numbers) keys.push_back(unpacked(number));
  return keys;
}

// x, or a copy, whose rows are runs of adjacent elements; they may be apart.
Tensor with_plain_rows(const Tensor& x) {
  return x.stride(1) == 1 || x.size(1) == 1 ? x : x.contiguous();
}

// Calls loop(pointers..., size) for pieces of the elements from these pointers on, in parallel.
template <class Loop, class... Pointers>
void for_each_piece(std::int64_t size, const Loop& loop, Pointers... pointers) {
  at::parallel_for(0, size, kGrain, [&](std::int64_t begin, std::int64_t end) {
    loop((pointers + begin)..., end - begin);
  });
}

template <bool is_exact>
struct GeluFunction : torch::autograd::Function<GeluFunction<is_exact>> {
  static Tensor forward(AutogradContext* context, const Tensor& input) {
    const Tensor x = input.contiguous();
    Tensor y = x.new_empty(x.sizes());
    context->save_for_backward({x});
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gelu", [&] {
      const auto& loops = elementwise<scalar_t>();
      for_each_piece(x.numel(), is_exact ? loops.exact_gelu : loops.gelu, x.data_ptr<scalar_t>(),
                     y.data_ptr<scalar_t>());
    });
    return y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const Tensor x = context->get_saved_variables()[0];
    const Tensor dy = gradients[0].contiguous();
    Tensor dx = x.new_empty(x.sizes());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "gelu_backward", [&] {
      const auto& loops = elementwise<scalar_t>();
      for_each_piece(x.numel(), is_exact ? loops.exact_gelu_backward : loops.gelu_backward,
                     x.data_ptr<scalar_t>(), dy.data_ptr<scalar_t>(), dx.data_ptr<scalar_t>());
    });
    return {dx};
  }
};

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& any_gate, const Tensor& any_up) {
    const Tensor gate = any_gate.contiguous(), up = any_up.contiguous();
    Tensor y = gate.new_empty(gate.sizes());
    context->save_for_backward({gate, up});
    AT_DISPATCH_FLOATING_TYPES(gate.scalar_type(), "swiglu", [&] {
      for_each_piece(y.numel(), elementwise<scalar_t>().swiglu, gate.data_ptr<scalar_t>(),
                     up.data_ptr<scalar_t>(), y.data_ptr<scalar_t>());
    });
    return y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &gate = saved[0], &up = saved[1];
    const Tensor dy = gradients[0].contiguous();
    Tensor d_gate = gate.new_empty(gate.sizes()), d_up = up.new_empty(up.sizes());
    AT_DISPATCH_FLOATING_TYPES(gate.scalar_type(), "swiglu_backward", [&] {
      for_each_piece(dy.numel(), elementwise<scalar_t>().swiglu_backward, gate.data_ptr<scalar_t>(),
                     up.data_ptr<scalar_t>(), dy.data_ptr<scalar_t>(), d_gate.data_ptr<scalar_t>(),
                     d_up.data_ptr<scalar_t>());
    });
    return {d_gate, d_up};
  }
};

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& any_weight,
                        double epsilon) {
    const Tensor x = input.contiguous(), weight = any_weight.contiguous();
    const std::int64_t width = weight.numel(), rows = x.numel() / width;
    Tensor y = x.new_empty(x.sizes()), inverses = x.new_empty({rows});
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rms_norm", [&] {
      const auto *from = x.data_ptr<scalar_t>(), *w = weight.data_ptr<scalar_t>();
      auto *to = y.data_ptr<scalar_t>(), *inverse = inverses.data_ptr<scalar_t>();
      at::parallel_for(0, rows, 1 + kGrain / width, [&](std::int64_t begin, std::int64_t end) {
        elementwise<scalar_t>().rms_norm(from + begin * width, w, to + begin * width,
                                         inverse + begin, end - begin, width, epsilon);
      });
    });
    context->save_for_backward({x, weight, inverses});
    return y;
  }

  // The weight's gradient is summed piece by piece of kRows rows, and then over the pieces: in the
  // same order by any number of threads.
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    constexpr std::int64_t kRows = 64;
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &inverses = saved[2];
    const Tensor dy = gradients[0].contiguous();
    const std::int64_t width = weight.numel(), rows = inverses.numel();
    const std::int64_t pieces = (rows + kRows - 1) / kRows;
    Tensor dx = x.new_empty(x.sizes()), sums = x.new_zeros({pieces, width});
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rms_norm_backward", [&] {
      const auto *from = x.data_ptr<scalar_t>(), *w = weight.data_ptr<scalar_t>();
      const auto *above = dy.data_ptr<scalar_t>(), *inverse = inverses.data_ptr<scalar_t>();
      auto *to = dx.data_ptr<scalar_t>(), *sum = sums.data_ptr<scalar_t>();
      at::parallel_for(0, pieces, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t piece = begin; piece < end; ++piece) {
          const std::int64_t row = piece * kRows, at = row * width;
          elementwise<scalar_t>().rms_norm_backward(from + at, w, above + at, inverse + row,
                                                    to + at, sum + piece * width,
                                                    std::min(kRows, rows - row), width);
        }
      });
    });
    return {dx, sums.sum(0), {}};
  }
};

// Turns every row of x by the angles of its position, or back.
Tensor rotated(const Tensor& input, const Tensor& cosines, const Tensor& sines,
               std::int64_t samples, std::int64_t heads, bool is_inverse) {
  const Tensor x = with_plain_rows(input);
  const std::int64_t rows = x.size(0), width = x.size(1), tokens = rows / samples;
  const std::int64_t half = width / heads / 2;
  Tensor y = x.new_empty(x.sizes());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rotate", [&] {
    const auto* from = x.data_ptr<scalar_t>();
    const auto *c = cosines.data_ptr<scalar_t>(), *s = sines.data_ptr<scalar_t>();
    auto* to = y.data_ptr<scalar_t>();
    at::parallel_for(0, rows, 1 + kGrain / width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        elementwise<scalar_t>().rotate(from + row * x.stride(0), c + row % tokens * half,
                                       s + row % tokens * half, to + row * width, heads, half,
                                       is_inverse);
    });
  });
  return y;
}

struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& any_cosines,
                        const Tensor& any_sines, std::int64_t samples, std::int64_t heads) {
    const Tensor cosines = any_cosines.contiguous(), sines = any_sines.contiguous();
    context->save_for_backward({cosines, sines});
    context->saved_data["samples"] = samples;
    context->saved_data["heads"] = heads;
    return rotated(x, cosines, sines, samples, heads, false);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    return {rotated(gradients[0], saved[0], saved[1], context->saved_data["samples"].toInt(),
                    context->saved_data["heads"].toInt(), true),
            {},
            {},
            {},
            {}};
  }
};

// Columns of a matrix, of which each row has words of its own: those of the whole row, from the
// first here on.
struct DrawnColumns {
  std::int64_t all = 0, first = 0;  // 0: a sample's words are one run
};

// out = residual + dropout(x), row by row.
void apply_dropout_by_row(const Tensor& residual, const Tensor& x, Tensor& out,
                          const std::vector<std::int64_t>& keys, double probability,
                          DrawnColumns drawn) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  const std::int64_t tokens = rows / static_cast<std::int64_t>(keys.size());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "dropout_add", [&] {
    const auto* base = residual.defined() ? residual.data_ptr<scalar_t>() : nullptr;
    const auto* from = x.data_ptr<scalar_t>();
    auto* to = out.data_ptr<scalar_t>();
    at::parallel_for(0, rows, 1 + kGrain / width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        elementwise<scalar_t>().dropout_add(
            base ? base + row * width : nullptr, from + row * width, to + row * width, width,
            unpacked(keys[static_cast<std::size_t>(row / tokens)]),
            static_cast<std::uint64_t>(row % tokens * drawn.all + drawn.first),
            rule_of(probability));
    });
  });
}

// out = residual + dropout(x), sample by sample; residual may be undefined.
void apply_dropout(const Tensor& residual, const Tensor& x, Tensor& out,
                   const std::vector<std::int64_t>& keys, double probability, DrawnColumns drawn) {
  if (x.numel() == 0) return;
  if (drawn.all > 0) return apply_dropout_by_row(residual, x, out, keys, probability, drawn);
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
                        const std::vector<std::int64_t>& keys, double probability, std::int64_t all,
                        std::int64_t first) {
    Tensor out = x.new_empty(x.sizes());
    apply_dropout(residual.contiguous(), x.contiguous(), out, keys, probability, {all, first});
    context->saved_data["keys"] = keys;
    context->saved_data["probability"] = probability;
    context->saved_data["all"] = all;
    context->saved_data["first"] = first;
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const Tensor dy = gradients[0].contiguous();
    Tensor dx = dy.new_empty(dy.sizes());
    apply_dropout({}, dy, dx, context->saved_data["keys"].toIntVector(),
                  context->saved_data["probability"].toDouble(),
                  {context->saved_data["all"].toInt(), context->saved_data["first"].toInt()});
    return {dy, dx, {}, {}, {}, {}};
  }
};

std::vector<std::int64_t> lengths_of(const Tensor& lengths, std::int64_t samples,
                                     std::int64_t keys) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(samples), keys);
  if (!lengths.defined()) return all;
  const Tensor plain = lengths.contiguous();
  const auto* given = plain.data_ptr<std::int64_t>();
  for (std::size_t s = 0; s < all.size(); ++s) {
    LACONIC_ASSERT(given[s] >= 1,
                   "sample " + std::to_string(s) + " has length " + std::to_string(given[s]));
    all[s] = std::min(keys, given[s]);
  }
  return all;
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& any_q, const Tensor& any_k,
                        const Tensor& any_v, const std::vector<std::int64_t>& sizes,
                        const std::vector<std::int64_t>& lengths,
                        const std::vector<std::int64_t>& keys, double probability) {
    const Tensor q = with_plain_rows(any_q), k = with_plain_rows(any_k), v = with_plain_rows(any_v);
    context->saved_data["sizes"] = sizes;
    context->saved_data["lengths"] = lengths;
    context->saved_data["keys"] = keys;
    context->saved_data["probability"] = probability;
    const AttentionTask task = task_of(context, q, k);
    Tensor out = q.new_empty(q.sizes());
    Tensor log_sums = q.new_empty({task.samples, task.heads, task.queries});
    attention_forward(task, q, k, v, out, log_sums);
    context->save_for_backward({q, k, v, log_sums});
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    Tensor dq = q.new_empty(q.sizes()), dk = k.new_empty(k.sizes()), dv = v.new_empty(v.sizes());
    attention_backward(task_of(context, q, k), q, k, v, saved[3], gradients[0].contiguous(), dq, dk,
                       dv);
    return {dq, dk, dv, {}, {}, {}, {}};
  }

 private:
  static AttentionTask task_of(AutogradContext* context, const Tensor& q, const Tensor& k) {
    const auto sizes =
        context->saved_data["sizes"].toIntVector();  // an AttentionShape, Dropout's tokens and head
    const std::int64_t samples = sizes[0], heads = sizes[1], tokens = sizes[4];
    const std::int64_t queries = q.size(0) / samples, keys = k.size(0) / samples;
    return {.samples = samples,
            .queries = queries,
            .keys = keys,
            .heads = heads,
            .key_heads = sizes[2],
            .head_width = q.size(1) / heads,
            .is_causal = sizes[3] != 0,
            .lengths = context->saved_data["lengths"].toIntVector(),
            .dropout_keys = unpacked(context->saved_data["keys"].toIntVector()),
            .probability = context->saved_data["probability"].toDouble(),
            .drawn_queries = tokens > 0 ? tokens : queries,
            .drawn_keys = tokens > 0 ? tokens : keys,
            .first_head = sizes[5]};
  }
};

// The same with q, k and v, and their gradients, as parts of one matrix.
struct CausalAttentionFunction : torch::autograd::Function<CausalAttentionFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, std::int64_t samples,
                        std::int64_t heads, const std::vector<std::int64_t>& keys,
                        double probability, std::int64_t first_head) {
    const Tensor qkv = input.contiguous();
    context->saved_data["first_head"] = first_head;
    context->saved_data["keys"] = keys;
    context->saved_data["probability"] = probability;
    const AttentionTask task = task_of(context, qkv, samples, heads);
    Tensor out = qkv.new_empty({qkv.size(0), qkv.size(1) / 3});
    Tensor log_sums = qkv.new_empty({samples, heads, task.queries});
    attention_forward(task, part(qkv, 0), part(qkv, 1), part(qkv, 2), out, log_sums);
    context->save_for_backward({qkv, log_sums});
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &qkv = saved[0], &log_sums = saved[1];
    Tensor d_qkv = qkv.new_empty(qkv.sizes());
    attention_backward(task_of(context, qkv, log_sums.size(0), log_sums.size(1)), part(qkv, 0),
                       part(qkv, 1), part(qkv, 2), log_sums, gradients[0].contiguous(),
                       part(d_qkv, 0), part(d_qkv, 1), part(d_qkv, 2));
    return {d_qkv, {}, {}, {}, {}, {}};
  }

 private:
  // q, k or v.
  static Tensor part(const Tensor& qkv, std::int64_t which) {
    const std::int64_t width = qkv.size(1) / 3;
    return qkv.narrow(1, which * width, width);
  }
  static AttentionTask task_of(AutogradContext* context, const Tensor& qkv, std::int64_t samples,
                               std::int64_t heads) {
    const std::int64_t tokens = qkv.size(0) / samples;
    return {.samples = samples,
            .queries = tokens,
            .keys = tokens,
            .heads = heads,
            .key_heads = heads,
            .head_width = qkv.size(1) / 3 / heads,
            .is_causal = true,
            .lengths = lengths_of({}, samples, tokens),
            .dropout_keys = unpacked(context->saved_data["keys"].toIntVector()),
            .probability = context->saved_data["probability"].toDouble(),
            .drawn_queries = tokens,
            .drawn_keys = tokens,
            .first_head = context->saved_data["first_head"].toInt()};
  }
};

// From the logits on, [rows, vocabulary]. The caller gives them away: backward turns these very
// numbers into their gradients, and the product that they come from does not need them.
struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& any_targets,
                        double smoothing) {
    const Tensor targets = any_targets.contiguous();
    const std::int64_t rows = logits.size(0), vocabulary = logits.size(1);
    Tensor log_sums = logits.new_empty({rows});
    Tensor means = logits.new_zeros({smoothing > 0 ? rows : 0});  // of the logits of a row
    Tensor loss = logits.new_empty({});
    AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "cross_entropy", [&] {
      const auto* data = logits.data_ptr<scalar_t>();
      auto *sums = log_sums.data_ptr<scalar_t>(), *mean = means.data_ptr<scalar_t>();
      const auto* target = targets.data_ptr<std::int64_t>();
      at::parallel_for(0, rows, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const scalar_t* row = data + r * vocabulary;
          sums[r] = target[r] == kNoTarget ? scalar_t(0)
                                           : elementwise<scalar_t>().log_sum_exp(row, vocabulary);
          if (smoothing > 0)
            mean[r] =
                elementwise<scalar_t>().sum(row, vocabulary) / static_cast<scalar_t>(vocabulary);
        }
      });
      double total = 0;  // in row order, whatever the number of threads
      for (std::int64_t r = 0; r < rows; ++r) {
        if (target[r] == kNoTarget) continue;
        LACONIC_ASSERT(target[r] >= 0 && target[r] < vocabulary,
                       "target " + std::to_string(target[r]) + " of " + std::to_string(vocabulary));
        total += (1 - smoothing) * static_cast<double>(sums[r] - data[r * vocabulary + target[r]]);
        if (smoothing > 0) total += smoothing * static_cast<double>(sums[r] - mean[r]);
      }
      *loss.data_ptr<scalar_t>() = static_cast<scalar_t>(total / static_cast<double>(rows));
    });
    context->save_for_backward({targets, log_sums});
    context->saved_data["smoothing"] = smoothing;
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
    const double smoothing = context->saved_data["smoothing"].toDouble();
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
                                                           static_cast<scalar_t>(scale), smoothing);
        }
      });
    });
    return {logits, {}, {}};
  }
};

}  // namespace

Tensor gelu(const Tensor& x) {
  return GeluFunction<false>::apply(x);
}

Tensor exact_gelu(const Tensor& x) {
  return GeluFunction<true>::apply(x);
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  return SwigluFunction::apply(gate, up);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  return RmsNormFunction::apply(x, weight, epsilon);
}

Tensor rotate(const Tensor& x, std::int64_t samples, std::int64_t heads, const Tensor& cosines,
              const Tensor& sines) {
  return RotateFunction::apply(x, cosines, sines, samples, heads);
}

Tensor dropout_add(const Tensor& residual, const Tensor& x, const Dropout& dropout) {
  if (dropout.probability == 0) return residual.add(x);
  return DropoutAddFunction::apply(residual, x, packed(dropout.sample_keys), dropout.probability,
                                   dropout.columns, dropout.first_column);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionShape& shape,
                 const Tensor& lengths, const Dropout& dropout) {
  const std::vector<std::int64_t> sizes = {shape.samples,   shape.heads,    shape.key_heads,
                                           shape.is_causal, dropout.tokens, dropout.first_head};
  return AttentionFunction::apply(q, k, v, sizes,
                                  lengths_of(lengths, shape.samples, k.size(0) / shape.samples),
                                  packed(dropout.sample_keys), dropout.probability);
}

Tensor causal_attention(const Tensor& qkv, std::int64_t samples, std::int64_t heads,
                        const Dropout& dropout) {
  return CausalAttentionFunction::apply(qkv, samples, heads, packed(dropout.sample_keys),
                                        dropout.probability, dropout.first_head);
}

Tensor cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const Tensor& targets, DeferredWeights* deferred, double smoothing) {
  return cross_entropy_of(transposed_linear(x, weight, bias, deferred), targets, smoothing);
}

Tensor cross_entropy_of(const Tensor& logits, const Tensor& targets, double smoothing) {
  return CrossEntropyFunction::apply(logits, targets, smoothing);
}

}  // namespace laconic::fused
