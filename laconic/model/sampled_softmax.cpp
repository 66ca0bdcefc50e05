#include "laconic/model/sampled_softmax.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
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

Tensor sampled_cross_entropy(const Tensor& short_x, const RowsOfTable& table, const Tensor& bias,
                             const Tensor& targets, const Negatives& negatives) {
  const Tensor x = full_length(short_x);
  const Tensor host = targets.to(at::kCPU).contiguous();
  const auto* words = host.data_ptr<std::int64_t>();
  const std::int64_t rows = targets.size(0);
  const auto drawn = static_cast<std::int64_t>(negatives.ids.size());
  // One look at the table: negatives, then targets.
  const Tensor ids =
      at::cat({at::tensor(negatives.ids).to(targets.device()), targets.clamp_min(0)});
  const Tensor vectors = full_length(table(ids));
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

// Of every row: the logarithm of the sum of e^logit so far, and the target's logit once its tile
// has been seen.
Tensor tiled_cross_entropy(const Tensor& short_x, const RowsOfTable& table, const Tensor& bias,
                           const Tensor& targets, const SoftmaxTiles& tiles) {
  const at::NoGradGuard no_grad;
  const Tensor x = full_length(short_x);
  const std::int64_t rows = x.size(0), vocabulary = bias.size(0);
  const auto like = x.options().dtype(at::kDouble);
  Tensor log_sums = at::full({rows}, -std::numeric_limits<double>::infinity(), like);
  const Tensor own = at::zeros({rows}, like);
  for (std::int64_t begin = 0; begin < vocabulary; begin += tiles.tile) {
    const std::int64_t words = std::min(tiles.tile, vocabulary - begin);
    const Tensor vectors = full_length(table(at::arange(begin, begin + words, targets.options())));
    const Tensor biases = full_length(bias.narrow(0, begin, words));
    const std::int64_t most = std::max<std::int64_t>(1, tiles.most_logits / words);
    for (std::int64_t r = 0; r < rows; r += most) {
      const std::int64_t count = std::min(most, rows - r);
      const Tensor logits = transposed_linear(x.narrow(0, r, count), vectors, biases);
      const Tensor sums = log_sums.narrow(0, r, count);
      sums.copy_(at::logaddexp(sums, logits.logsumexp(1).to(at::kDouble)));
      const Tensor place = targets.narrow(0, r, count).sub(begin);
      const Tensor is_here = place.ge(0).logical_and(place.lt(words));
      const Tensor found = logits.gather(1, place.clamp(0, words - 1).unsqueeze(1)).squeeze(1);
      own.narrow(0, r, count).add_(found.to(at::kDouble).mul(is_here));
    }
  }
  return log_sums.sub(own)
      .masked_fill(targets.eq(kNoTarget), 0)
      .sum()
      .div(static_cast<double>(rows));
}

}  // namespace laconic
