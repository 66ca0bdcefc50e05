#include "laconic/train/predict.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "laconic/base/target.hpp"
#include "laconic/model/model.hpp"
#include "laconic/train/answers.hpp"

namespace laconic {

namespace {

// Rows of one matrix, behind which there is padding.
struct PaddedRows {
  at::Tensor ids, types;  // [inputs, longest]
  at::Tensor length;      // [inputs, 1]
};

PaddedRows pad(const std::vector<PredictInput>& inputs, at::Device device) {
  std::size_t longest = 0;
  for (const PredictInput& input : inputs) longest = std::max(longest, input.ids.size());
  const auto rows = static_cast<std::int64_t>(inputs.size());
  at::Tensor ids = at::zeros({rows, static_cast<std::int64_t>(longest)}, at::kLong);
  at::Tensor types = at::zeros_like(ids), length = at::zeros({rows, 1}, at::kLong);
  for (std::int64_t r = 0; r < rows; ++r) {
    const PredictInput& input = inputs[static_cast<std::size_t>(r)];
    std::ranges::copy(input.ids, ids[r].data_ptr<std::int64_t>());
    std::ranges::copy(input.types, types[r].data_ptr<std::int64_t>());
    length[r][0] = static_cast<std::int64_t>(input.ids.size());
  }
  return {ids.to(device), types.to(device), length.to(device)};
}

at::Tensor on_host(const at::Tensor& x) {
  return x.to(at::kCPU, at::kDouble).contiguous();
}

// Log probabilities of every token at every position: [inputs, longest, vocabulary].
at::Tensor log_probabilities(const Weights& weights, const PaddedRows& rows, const Pass& pass) {
  const Batch batch{{"ids", rows.ids}, {"types", rows.types}, {"length", rows.length}};
  const at::Tensor logits = on_host(forward_logits(weights, batch, pass));
  return logits.log_softmax(-1).view({rows.ids.size(0), rows.ids.size(1), -1});
}

void predict_next(const at::Tensor& log_p, const PredictInput& input, ModelAnswer& found) {
  for (std::size_t t = 1; t < input.ids.size(); ++t) {
    const auto before = static_cast<std::int64_t>(t) - 1;
    found.log_probabilities.push_back(log_p[before][input.ids[t]].item<double>());
    found.log_probability += found.log_probabilities.back();
  }
}

void predict_hidden(const at::Tensor& log_p, const PredictInput& input, const PredictRule& rule,
                    ModelAnswer& found) {
  for (std::size_t t = 0; t < input.ids.size(); ++t) {
    if (input.ids[t] != rule.mask) continue;
    const at::Tensor row = log_p[static_cast<std::int64_t>(t)];
    const auto [values, ids] = row.topk(std::min(rule.best, row.numel()));
    Guess guess{.position = t, .best = {}};
    for (std::int64_t i = 0; i < ids.numel(); ++i)
      guess.best.emplace_back(ids[i].item<std::int64_t>(), values[i].item<double>());
    found.guesses.push_back(std::move(guess));
  }
}

// What the head of a BERT puts out, where rank 0 is: labels that it does not need are given to it.
at::Tensor answers_of(const Weights& weights, const PaddedRows& rows, Pass pass) {
  const at::Tensor none = at::zeros_like(rows.length);
  const Batch batch{{"ids", rows.ids}, {"types", rows.types},           {"length", rows.length},
                    {"label", none},   {"score", none.to(at::kDouble)}, {"start", none},
                    {"end", none}};
  at::Tensor answers;
  pass.predictions = &answers;
  forward_loss(weights, batch, pass);
  return answers.defined() ? on_host(answers) : answers;
}

std::vector<ModelAnswer> predict_translations(const Weights& weights,
                                              const std::vector<PredictInput>& inputs,
                                              const PredictRule& rule, const ModelRanks& ranks) {
  std::vector<std::vector<std::int64_t>> sources;
  for (const PredictInput& input : inputs) sources.push_back(input.ids);
  std::vector<ModelAnswer> predictions;
  for (Translation& t : translate(weights, sources, rule.translation, ranks)) {
    predictions.emplace_back();
    predictions.back().ids = std::move(t.ids);
    predictions.back().log_probability = t.log_probability;
  }
  if (!ranks.is_first()) predictions.clear();
  return predictions;
}

}  // namespace

Problems check(const Weights& weights, const PredictInput& input) {
  Problems problems;
  const std::int64_t context = context_of(weights.family), count = vocabulary_of(weights.family);
  const auto length = static_cast<std::int64_t>(input.ids.size());
  if (length < 1 || length > context)
    problems.push_back(
        {"ids", fmt::format("{} tokens; this model takes 1 to {}", length, context)});
  for (const std::int64_t id : input.ids)
    if (id < 0 || id >= count) {
      problems.push_back({"ids", fmt::format("token id {} is not in [0, {})", id, count)});
      break;
    }
  if (!input.types.empty() && input.types.size() != input.ids.size())
    problems.push_back(
        {"types", fmt::format("{} types for {} tokens", input.types.size(), length)});
  const auto* bert = std::get_if<BertShape>(&weights.family);
  for (const std::int64_t type : input.types)
    if (type < 0 || type >= (bert != nullptr ? bert->types : 1)) {
      problems.push_back({"types", fmt::format("type {} is not known to this model", type)});
      break;
    }
  return problems;
}

std::vector<ModelAnswer> predict(const Weights& weights, const std::vector<PredictInput>& inputs,
                                 const PredictRule& rule, const ModelRanks& ranks) {
  if (inputs.empty()) return {};
  if (translates(weights.family)) return predict_translations(weights, inputs, rule, ranks);
  const Pass pass{.grid = ranks.grid};
  std::vector<ModelAnswer> predictions(inputs.size());
  const auto* bert = std::get_if<BertShape>(&weights.family);
  const bool finds_words =
      bert != nullptr && (bert->head == BertHead::masked || bert->head == BertHead::pretraining);
  const bool is_about_tokens = bert == nullptr || finds_words;
  at::Tensor answers;
  if (!is_about_tokens) answers = answers_of(weights, pad(inputs, weights.device()), pass);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    // Text by text: a vocabulary's worth of numbers for every token of all would be much.
    const at::Tensor answer =
        is_about_tokens    ? log_probabilities(weights, pad({inputs[i]}, weights.device()), pass)[0]
        : ranks.is_first() ? answers[static_cast<std::int64_t>(i)]
                           : at::Tensor();
    if (!ranks.is_first()) continue;
    ModelAnswer& found = predictions[i];
    if (bert == nullptr) {
      predict_next(answer, inputs[i], found);
    } else if (finds_words) {
      predict_hidden(answer, inputs[i], rule, found);
    } else if (bert->head == BertHead::span) {
      std::vector<std::int64_t> types = inputs[i].types;
      types.resize(inputs[i].ids.size());
      const AnswerRange best =
          best_answer(answer, types, static_cast<std::int64_t>(inputs[i].ids.size()));
      if (best.begin < 0)
        throw std::runtime_error("logits are not finite: the model is broken, perhaps it diverged");
      found.begin = best.begin;
      found.end = best.end;
      found.log_probability = best.log_probability;
    } else {
      for (std::int64_t k = 0; k < answer.numel(); ++k)
        found.logits.push_back(answer[k].item<double>());
    }
  }
  if (!ranks.is_first()) predictions.clear();
  return predictions;
}

}  // namespace laconic
