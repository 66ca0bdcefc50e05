#include "laconic/model/bert.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/base/target.hpp"
#include "laconic/model/layer_parts.hpp"
#include "laconic/model/linear.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

namespace {

// Places in a block where dropout acts; they choose different keys.
enum class BertSite : std::uint64_t { embedding, attention, attention_output, output, pooled };

Dropout dropout_at(const Pass& pass, std::int64_t block, BertSite site) {
  return dropout_at(pass, block, static_cast<std::uint64_t>(site));
}

at::Tensor dropped(const at::Tensor& x, const Dropout& dropout) {
  return dropout.probability > 0 ? dropout_add(at::zeros_like(x), x, dropout) : x;
}

at::Tensor embed(const BertShape& shape, const Weights& weights, const Batch& batch,
                 const Pass& pass) {
  const at::Tensor& ids = batch["ids"];
  const std::int64_t tokens = ids.size(1);
  LACONIC_ASSERT(tokens <= shape.context,
                 fmt::format("{} tokens, context {}", tokens, shape.context));
  LeafReader leaves(weights, 0);
  const at::Tensor &words = leaves.tensor(), &positions = leaves.tensor(), &types = leaves.tensor();
  const at::Tensor rows =
      table_rows(words, ids.flatten()).add(table_rows(types, batch["types"].flatten()));
  const at::Tensor x = rows.view({-1, tokens, shape.width})
                           .add(positions.narrow(0, 0, tokens))
                           .view({-1, shape.width});
  return dropped(apply(leaves.norm(), x, shape.norm_epsilon),
                 dropout_at(pass, 0, BertSite::embedding));
}

at::Tensor layer(const BertShape& shape, const Weights& weights, std::int64_t block,
                 const at::Tensor& x, const Batch& batch, const Pass& pass) {
  LeafReader leaves(weights, block);
  const auto map = [&](const at::Tensor& from) {
    return apply(leaves.linear(), from, pass.deferred);
  };
  // The norm of x + dropout(branch). The branch is computed first: it takes leaves before the
  // norm's.
  const auto add_norm = [&](const at::Tensor& to, const at::Tensor& branch, BertSite site) {
    const NormLeaves norm = leaves.norm();
    return add_layer_norm(to, branch, dropout_at(pass, block, site), norm.weight, norm.bias,
                          shape.norm_epsilon)
        .normed;
  };
  const at::Tensor q = map(x), k = map(x), v = map(x);
  const at::Tensor mixed = attention(
      q, k, v, {.samples = batch.samples(), .heads = shape.heads, .key_heads = shape.heads},
      batch["length"].flatten(), dropout_at(pass, block, BertSite::attention));
  const at::Tensor projected = map(mixed);
  const at::Tensor y = add_norm(x, projected, BertSite::attention_output);
  const LinearLeaves up = leaves.linear();
  const at::Tensor down = map(exact_gelu_linear(y, up.weight, up.bias, pass.deferred));
  return add_norm(y, down, BertSite::output);
}

// The head's parameters, in the order of bert_spec().
struct BertHeadLeaves {
  at::Tensor words;       // the table of the embedding
  std::int64_t room = 0;  // behind it
  LinearLeaves pooler;
  at::Tensor bias;
  LinearLeaves transform;
  NormLeaves norm;
  LinearLeaves last;  // of the next sentence, the classes, the number or the span
};

BertHeadLeaves head_of(const BertShape& shape, const Weights& weights) {
  LeafReader leaves(weights, shape.layers + 1);
  const bool finds_words = shape.head == BertHead::masked || shape.head == BertHead::pretraining;
  BertHeadLeaves head;
  if (finds_words) head.words = leaves.tensor();
  if (finds_words) head.room = weights.room(shape.layers + 1, head.words);
  if (shape.head != BertHead::masked && shape.head != BertHead::span) head.pooler = leaves.linear();
  if (finds_words) {
    head.bias = leaves.tensor();
    head.transform = leaves.linear();
    head.norm = leaves.norm();
  }
  if (shape.head != BertHead::masked) head.last = leaves.linear();
  return head;
}

at::Tensor transformed(const BertShape& shape, const BertHeadLeaves& head, const at::Tensor& x,
                       DeferredWeights* deferred) {
  return apply(head.norm, exact_gelu(apply(head.transform, x, deferred)), shape.norm_epsilon);
}

// Of the first token of each sample: [b, d].
at::Tensor pooled(const BertHeadLeaves& head, const at::Tensor& x, DeferredWeights* deferred) {
  return apply(head.pooler, x.select(1, 0).contiguous(), deferred).tanh();
}

// Mean over rows of -log softmax(logits)[target], where kNoTarget adds nothing.
at::Tensor mean_loss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::nll_loss(full_length(logits).log_softmax(-1), targets, {}, at::Reduction::Sum,
                      kNoTarget)
      .div(static_cast<double>(targets.numel()));
}

// Only hidden tokens go through the head: the others have no loss.
at::Tensor masked_loss(const BertShape& shape, const BertHeadLeaves& head, const at::Tensor& x,
                       const at::Tensor& targets, const Pass& pass) {
  const at::Tensor all = targets.flatten();
  at::Tensor hidden = all.ne(kNoTarget).nonzero().flatten();
  if (hidden.numel() == 0) hidden = at::zeros({1}, hidden.options());  // a row without a target
  const at::Tensor rows =
      transformed(shape, head, x.reshape({-1, shape.width}).index_select(0, hidden), pass.deferred);
  if (pass.predictions != nullptr) {
    const at::Tensor best = rows.mm(head.words.t()).add_(head.bias).argmax(-1);
    at::Tensor found = at::full_like(all, kNoTarget).index_copy(0, hidden, best);
    *pass.predictions = found.where(all.ne(kNoTarget), all).view(targets.sizes());
  }
  const double share = static_cast<double>(hidden.numel()) / static_cast<double>(all.numel());
  return cross_entropy(rows, head.words, head.bias, all.index_select(0, hidden), pass.deferred, 0,
                       head.room)
      .mul(share);
}

// The mean of both ends' losses. Padding is no candidate: how much there is of it changes nothing.
at::Tensor span_loss(const BertHeadLeaves& head, const at::Tensor& x, const Batch& batch,
                     const Pass& pass) {
  const std::int64_t samples = x.size(0), tokens = x.size(1);
  const at::Tensor position = at::arange(tokens, batch["length"].options());
  const at::Tensor padding = position.ge(batch["length"].view({-1, 1, 1}));
  const at::Tensor ends = apply(head.last, x.reshape({samples * tokens, -1}), pass.deferred)
                              .view({samples, tokens, 2})
                              .transpose(1, 2)  // [b, 2, t]
                              .masked_fill(padding, -std::numeric_limits<double>::infinity());
  if (pass.predictions != nullptr) *pass.predictions = ends.detach();
  return mean_loss(ends.select(1, 0), batch["start"].flatten())
      .add(mean_loss(ends.select(1, 1), batch["end"].flatten()))
      .div(2);
}

at::Tensor head_loss(const BertShape& shape, const Weights& weights, const at::Tensor& x,
                     const Batch& batch, const Pass& pass) {
  const BertHeadLeaves head = head_of(shape, weights);
  const std::int64_t block = shape.layers + 1;
  const auto tell = [&](const at::Tensor& predictions) {
    if (pass.predictions != nullptr) *pass.predictions = predictions.detach();
  };
  const auto last = [&] {
    return apply(head.last,
                 dropped(pooled(head, x, pass.deferred), dropout_at(pass, block, BertSite::pooled)),
                 pass.deferred);
  };
  switch (shape.head) {
    case BertHead::masked: return masked_loss(shape, head, x, batch["targets"], pass);
    case BertHead::pretraining: {
      const at::Tensor loss = masked_loss(shape, head, x, batch["targets"], pass);
      if (pass.second_term == 0 && pass.second_predictions == nullptr) return loss;
      const at::Tensor next = apply(head.last, pooled(head, x, pass.deferred), pass.deferred);
      if (pass.second_predictions != nullptr) *pass.second_predictions = next.detach();
      if (pass.second_term == 0) return loss;
      return loss.add(mean_loss(next, batch["next"].flatten()), pass.second_term);
    }
    case BertHead::classify: {
      const at::Tensor logits = last();
      tell(logits);
      return mean_loss(logits, batch["label"].flatten());
    }
    case BertHead::regress: {
      const at::Tensor number = full_length(last());
      tell(number);
      return at::mse_loss(number.flatten(), batch["score"].flatten().to(number.scalar_type()));
    }
    case BertHead::span: return span_loss(head, x, batch, pass);
  }
  LACONIC_ASSERT(false, "no such head");
  return {};
}

}  // namespace

Seam forward_block(const BertShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass) {
  const auto seam = [&](const at::Tensor& x) {
    return Seam{x.view({batch.samples(), -1, shape.width})};
  };
  if (block == 0) return seam(embed(shape, weights, batch, pass));
  if (block <= shape.layers)
    return seam(layer(shape, weights, block, in[0].view({-1, shape.width}), batch, pass));
  return {head_loss(shape, weights, in[0], batch, pass)};
}

at::Tensor logits_of(const BertShape& shape, const Weights& weights, const Seam& seam) {
  const BertHeadLeaves head = head_of(shape, weights);
  if (!head.words.defined())
    throw ConfigError(fmt::format("a BERT with the head \"{}\" has no logits of tokens",
                                  name_in(kBertHeadNames, shape.head)));
  const at::Tensor x = transformed(shape, head, seam[0].view({-1, shape.width}), nullptr);
  return x.mm(head.words.t()).add_(head.bias);
}

std::vector<at::Tensor> constants_of(const BertShape&, std::int64_t, const at::TensorOptions&) {
  return {};
}

}  // namespace laconic
