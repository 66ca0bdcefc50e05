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
#include "laconic/model/ops.hpp"

namespace laconic {

namespace {

// Places in a block where dropout acts; they choose different keys.
enum class BertSite : std::uint64_t { embedding, attention, attention_output, output, pooled };

std::uint64_t place(BertSite site) {
  return static_cast<std::uint64_t>(site);
}

at::Tensor dropped(const at::Tensor& x, const Dropout& dropout) {
  return dropout.probability > 0 ? dropout_add(at::zeros_like(x), x, dropout) : x;
}

at::Tensor embed(const BertShape& shape, BlockOps& ops, const Batch& batch) {
  const at::Tensor& ids = batch["ids"];
  const std::int64_t tokens = ids.size(1), width = ops.stream_width(shape.width);
  LACONIC_ASSERT(tokens <= shape.context,
                 fmt::format("{} tokens, context {}", tokens, shape.context));
  LeafReader leaves;
  const std::size_t words = leaves.tensor(), positions = leaves.tensor(), types = leaves.tensor();
  const at::Tensor kinds = ops.rows_of(batch["types"], RowsAt::stream).flatten();
  const at::Tensor rows = ops.table_rows(words, ids).add(table_rows(ops.vector(types), kinds));
  const at::Tensor x = rows.view({-1, tokens, width})
                           .add(ops.vector(positions).narrow(0, 0, tokens))
                           .view({-1, width});
  return dropped(ops.norm(x, leaves.norm(), shape.norm_epsilon),
                 ops.stream_dropout(place(BertSite::embedding), shape.width));
}

at::Tensor layer(const BertShape& shape, BlockOps& ops, const at::Tensor& x, const Batch& batch) {
  LeafReader leaves;
  const MapAt q = leaves.linear(), k = leaves.linear(), v = leaves.linear();
  const MapAt projection = leaves.linear();
  const NormAt norm1 = leaves.norm();
  const MapAt up = leaves.linear(), down = leaves.linear();
  const NormAt norm2 = leaves.norm();
  const auto add_norm = [&](const at::Tensor& to, const at::Tensor& branch, BertSite site,
                            const NormAt& norm) {
    return ops
        .add_norm(to, branch, ops.stream_dropout(place(site), shape.width), norm,
                  shape.norm_epsilon)
        .normed;
  };
  const std::int64_t heads = ops.heads(shape.heads);
  const Tensors qkv = ops.linears(x, {q, k, v});
  const at::Tensor mixed =
      attention(qkv[0], qkv[1], qkv[2],
                {.samples = ops.samples(RowsAt::inner), .heads = heads, .key_heads = heads},
                ops.rows_of(batch["length"], RowsAt::inner).flatten(),
                ops.attention_dropout(place(BertSite::attention), shape.heads));
  const at::Tensor y =
      add_norm(x, ops.linear(mixed, projection), BertSite::attention_output, norm1);
  return add_norm(y, ops.linear(ops.exact_gelu_linear(y, up), down), BertSite::output, norm2);
}

// The head's parameters, in the order of bert_spec().
struct BertHeadLeaves {
  std::size_t words = 0;  // the table of the embedding
  MapAt pooler;
  std::size_t bias = 0;
  MapAt transform;
  NormAt norm;
  MapAt last;  // of the next sentence, the classes, the number or the span
};

bool finds_words(const BertShape& shape) {
  return shape.head == BertHead::masked || shape.head == BertHead::pretraining;
}

BertHeadLeaves head_of(const BertShape& shape) {
  LeafReader leaves;
  BertHeadLeaves head;
  if (finds_words(shape)) head.words = leaves.tensor();
  if (shape.head != BertHead::masked && shape.head != BertHead::span) head.pooler = leaves.linear();
  if (finds_words(shape)) {
    head.bias = leaves.tensor();
    head.transform = leaves.linear();
    head.norm = leaves.norm();
  }
  if (shape.head != BertHead::masked) head.last = leaves.linear();
  return head;
}

at::Tensor transformed(const BertShape& shape, const BertHeadLeaves& head, BlockOps& ops,
                       const at::Tensor& x) {
  return ops.norm(exact_gelu(ops.linear(x, head.transform)), head.norm, shape.norm_epsilon);
}

// Of the first token of each sample: [b, d].
at::Tensor pooled(const BertHeadLeaves& head, BlockOps& ops, const at::Tensor& x) {
  return ops.linear(x.select(1, 0).contiguous(), head.pooler, 1).tanh();
}

// Sum over rows of -log softmax(logits)[target], where kNoTarget adds nothing.
at::Tensor sum_loss(const at::Tensor& logits, const at::Tensor& targets) {
  return at::nll_loss(full_length(logits).log_softmax(-1), targets, {}, at::Reduction::Sum,
                      kNoTarget);
}

// The rows that only hidden tokens have go through the head: the others have no loss. On a grid all
// do, since the rows of its ranks must be as many as their samples say.
at::Tensor masked_loss(const BertShape& shape, const BertHeadLeaves& head, const Weights& weights,
                       BlockOps& ops, const at::Tensor& x, const at::Tensor& targets) {
  if (!is_trivial(weights.place.plan)) {
    const at::Tensor rows = transformed(shape, head, ops, x.reshape({-1, x.size(2)}));
    if (ops.pass().predictions != nullptr) {
      const at::Tensor found = ops.predicted_entries(rows, head.words, head.bias);
      if (ops.speaks()) *ops.pass().predictions = found.where(targets.ne(kNoTarget), targets);
    }
    return ops.cross_entropy(rows, head.words, head.bias, targets);
  }
  const std::int64_t block = shape.layers + 1;
  const at::Tensor all = targets.flatten();
  at::Tensor hidden = all.ne(kNoTarget).nonzero().flatten();
  if (hidden.numel() == 0) hidden = at::zeros({1}, hidden.options());  // a row without a target
  const at::Tensor rows =
      transformed(shape, head, ops, x.reshape({-1, shape.width}).index_select(0, hidden));
  if (ops.pass().predictions != nullptr) {
    const at::Tensor best = rows.mm(weights.leaf(block, head.words).t())
                                .add_(weights.leaf(block, head.bias))
                                .argmax(-1);
    at::Tensor found = at::full_like(all, kNoTarget).index_copy(0, hidden, best);
    *ops.pass().predictions = found.where(all.ne(kNoTarget), all).view(targets.sizes());
  }
  const double share = static_cast<double>(hidden.numel()) / static_cast<double>(all.numel());
  return ops.cross_entropy(rows, head.words, head.bias, all.index_select(0, hidden)).mul(share);
}

// The mean of both ends' losses. Padding is no candidate: how much there is of it changes nothing.
at::Tensor span_loss(const BertHeadLeaves& head, BlockOps& ops, const at::Tensor& x,
                     const Batch& batch) {
  const std::int64_t samples = x.size(0), tokens = x.size(1);
  const auto field = [&](const char* name) { return ops.rows_of(batch[name], RowsAt::stream); };
  const at::Tensor position = at::arange(tokens, batch["length"].options());
  const at::Tensor padding = position.ge(field("length").view({-1, 1, 1}));
  const at::Tensor ends = ops.linear(x.reshape({samples * tokens, x.size(2)}), head.last)
                              .view({samples, tokens, 2})
                              .transpose(1, 2)  // [b, 2, t]
                              .masked_fill(padding, -std::numeric_limits<double>::infinity());
  if (ops.pass().predictions != nullptr) {
    const at::Tensor all =
        ops.all_rows(ends.detach().reshape({samples, 2 * tokens}), RowsAt::stream, 1);
    if (ops.speaks()) *ops.pass().predictions = all.view({-1, 2, tokens});
  }
  const auto mean = [&](std::int64_t end, const char* name) {
    return ops.mean_of(sum_loss(ends.select(1, end), field(name).flatten()), batch[name].numel(),
                       RowsAt::stream);
  };
  return mean(0, "start").add(mean(1, "end")).div(2);
}

at::Tensor head_loss(const BertShape& shape, const Weights& weights, BlockOps& ops,
                     const at::Tensor& x, const Batch& batch) {
  const BertHeadLeaves head = head_of(shape);
  const Pass& pass = ops.pass();
  const auto tell = [&](at::Tensor* to, const at::Tensor& predictions) {
    if (to == nullptr) return;
    const at::Tensor all = ops.all_rows(predictions.detach(), RowsAt::inner, 1);
    if (ops.speaks()) *to = all;
  };
  // From the pooled token to a few numbers of each sample.
  const auto last = [&](bool is_dropped) {
    const at::Tensor from = pooled(head, ops, x);
    const Dropout dropout =
        is_dropped ? ops.inner_dropout(place(BertSite::pooled), shape.width) : Dropout();
    return ops.linear(dropped(from, dropout), head.last, 1);
  };
  const auto field = [&](const char* name) {
    return ops.rows_of(batch[name], RowsAt::inner).flatten();
  };
  const auto mean = [&](const at::Tensor& sum, const char* name) {
    return ops.mean_of(sum, batch[name].numel(), RowsAt::inner);
  };
  switch (shape.head) {
    case BertHead::masked: return masked_loss(shape, head, weights, ops, x, batch["targets"]);
    case BertHead::pretraining: {
      const at::Tensor loss = masked_loss(shape, head, weights, ops, x, batch["targets"]);
      if (pass.second_term == 0 && pass.second_predictions == nullptr) return loss;
      const at::Tensor next = last(false);
      tell(pass.second_predictions, next);
      if (pass.second_term == 0) return loss;
      return loss.add(mean(sum_loss(next, field("next")), "next"), pass.second_term);
    }
    case BertHead::classify: {
      const at::Tensor logits = last(true);
      tell(pass.predictions, logits);
      return mean(sum_loss(logits, field("label")), "label");
    }
    case BertHead::regress: {
      const at::Tensor number = full_length(last(true));
      tell(pass.predictions, number);
      const at::Tensor score = field("score").to(number.scalar_type());
      return mean(at::mse_loss(number.flatten(), score, at::Reduction::Sum), "score");
    }
    case BertHead::span: return span_loss(head, ops, x, batch);
  }
  LACONIC_ASSERT(false, "no such head");
  return {};
}

}  // namespace

Seam forward_block(const BertShape& shape, const Weights& weights, std::int64_t block,
                   const Seam& in, const Batch& batch, const Pass& pass) {
  BlockOps ops(weights, block, batch.samples(), batch["ids"].size(1), pass);
  if (block == 0) return {ops.as_seam(embed(shape, ops, batch))};
  if (block <= shape.layers)
    return {ops.as_seam(layer(shape, ops, in[0].view({-1, ops.stream_width(shape.width)}), batch))};
  return {head_loss(shape, weights, ops, in[0], batch)};
}

at::Tensor logits_of(const BertShape& shape, BlockOps& ops, const at::Tensor& x) {
  if (!finds_words(shape))
    throw ConfigError(fmt::format("a BERT with the head \"{}\" has no logits of tokens",
                                  name_in(kBertHeadNames, shape.head)));
  const BertHeadLeaves head = head_of(shape);
  return ops.logits(transformed(shape, head, ops, x), head.words, head.bias);
}

std::vector<at::Tensor> constants_of(const BertShape&, std::int64_t, const at::TensorOptions&) {
  return {};
}

}  // namespace laconic
