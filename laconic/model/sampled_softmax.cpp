#include "laconic/model/sampled_softmax.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>
#include <unordered_map>
#include <vector>

#include "laconic/base/target.hpp"
#include "laconic/base/word_law.hpp"
#include "laconic/model/linear.hpp"
#include "laconic/model/ops.hpp"

namespace laconic {

namespace {

using at::Tensor;

// Rows and columns of logits where a negative is the target.
struct Hits {
  std::vector<std::int64_t> rows, columns;
};

Hits hits_of(const std::int64_t* targets, std::int64_t rows, const Negatives& negatives) {
  std::unordered_map<std::int64_t, std::int64_t> columns;
  for (std::size_t i = 0; i < negatives.ids.size(); ++i)
    columns.emplace(negatives.ids[i], static_cast<std::int64_t>(i));
  Hits hits;
  for (std::int64_t r = 0; r < rows; ++r)
    if (const auto found = columns.find(targets[r]); found != columns.end()) {
      hits.rows.push_back(r);
      hits.columns.push_back(found->second);
    }
  return hits;
}

// log E(w) of these words.
Tensor log_counts(const std::int64_t* words, std::int64_t count, const Negatives& negatives,
                  const Tensor& like) {
  std::vector<double> logs;
  for (std::int64_t i = 0; i < count; ++i)
    logs.push_back(std::log(expected_count(negatives, std::max<std::int64_t>(words[i], 0))));
  return at::tensor(logs, at::kDouble).to(like.options().requires_grad(false));
}

Tensor mean_loss(const Tensor& logits, const Tensor& targets) {
  if (logits.is_cpu()) return fused::cross_entropy_of(logits, targets, 0);
  return at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, kNoTarget, 0)
      .div(static_cast<double>(targets.size(0)));
}

}  // namespace

Tensor sampled_cross_entropy(const Tensor& short_x, const Tensor& table, const Tensor& bias,
                             const Tensor& targets, const Negatives& negatives) {
  const Tensor x = full_length(short_x);
  const Tensor host = targets.to(at::kCPU).contiguous();
  const auto* words = host.data_ptr<std::int64_t>();
  const std::int64_t rows = targets.size(0);
  const auto drawn = static_cast<std::int64_t>(negatives.ids.size());
  // One look at the table: negatives, then targets.
  const Tensor ids =
      at::cat({at::tensor(negatives.ids).to(targets.device()), targets.clamp_min(0)});
  const Tensor vectors = full_length(table_rows(table, ids));
  const Tensor biases = full_length(bias.index_select(0, ids));
  const Tensor of_negatives =
      biases.narrow(0, 0, drawn).sub(log_counts(negatives.ids.data(), drawn, negatives, x));
  Tensor against = transposed_linear(x, vectors.narrow(0, 0, drawn), of_negatives);
  if (const Hits hits = hits_of(words, rows, negatives); !hits.rows.empty()) {
    const auto at_device = [&](const std::vector<std::int64_t>& numbers) {
      return c10::optional<Tensor>(at::tensor(numbers).to(x.device()));
    };
    against.index_put_({at_device(hits.rows), at_device(hits.columns)},
                       x.new_full({}, -std::numeric_limits<double>::infinity()));
  }
  const Tensor own = x.mul(vectors.narrow(0, drawn, rows))
                         .sum(1)
                         .add(biases.narrow(0, drawn, rows))
                         .sub(log_counts(words, rows, negatives, x));
  // The target is the first of the words that are compared.
  const Tensor first = at::where(targets.eq(kNoTarget), targets, at::zeros_like(targets));
  return mean_loss(at::cat({own.unsqueeze(1), against}, 1), first);
}

}  // namespace laconic
