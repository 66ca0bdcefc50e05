// train/answers.hpp — what a model answers to the samples of a task, and how good that is.
//
// An answer is a few numbers: the class; the score; first and last token of a span; how many
// hidden tokens were found and, with sentence pairs, whether the second sentence was told right (1
// or 0). Other tasks have none: their loss says it all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "laconic/data/task.hpp"
#include "laconic/model/model.hpp"

namespace laconic {

// By name, in the order in which they are shown: {"accuracy", 0.91}.
using Metrics = std::vector<std::pair<std::string, double>>;

std::size_t numbers_per_answer(const Task& task);  // 0: there are no answers

// What the last block predicted for some samples (Pass::predictions, Pass::second_predictions).
struct Predictions {
  at::Tensor first;
  at::Tensor second = {};  // of sentence pairs alone
};
std::vector<double> answers_from(const Task& task, const Batch& batch,
                                 const Predictions& predictions);

// An answer in the second text, or, where there is none, position 0.
struct AnswerRange {
  std::int64_t begin = -1;  // -1: no number was finite
  std::int64_t end = -1;
  double log_probability = 0;
};
inline constexpr std::int64_t kLongestAnswer = 30;  // tokens

// The likeliest, with `types` and `length` of the sample; ends [2, tokens] are the logits of first
// and last token, as doubles on the host. Where all types are 0 the first text holds the answer.
AnswerRange best_answer(const at::Tensor& ends, std::span<const std::int64_t> types,
                        std::int64_t length);

// Of the first samples of the dataset, as many as there are answers. `targets` counts hidden
// tokens. Classes: accuracy, Matthews correlation, and with two of them F1 of the second; scores:
// Pearson and Spearman correlation, left out where they are undefined; spans: exact match and the
// mean F1 of tokens, of samples that have an answer; hidden tokens: accuracy, and with sentence
// pairs next_accuracy, of samples.
Metrics measure(const Task& task, const Dataset& data, const std::vector<double>& answers,
                std::int64_t targets);

}  // namespace laconic
