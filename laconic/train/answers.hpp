// train/answers.hpp — what a model answers to the samples of a task, and how good that is.
//
// An answer is a few numbers: the class; the score; first and last token of a span;
// how many hidden tokens were found. Other tasks have none: their loss says it all.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "laconic/data/task.hpp"
#include "laconic/model/model.hpp"

namespace laconic {

// By name, in the order in which they are shown: {"accuracy", 0.91}.
using Metrics = std::vector<std::pair<std::string, double>>;

std::size_t numbers_per_answer(const Task& task);  // 0: there are no answers

// From what the last block predicted (Pass::predictions) for these samples.
std::vector<double> answers_from(const Task& task, const Batch& batch,
                                 const at::Tensor& predictions);

// Of the first samples of the dataset, as many as there are answers. `targets` counts hidden
// tokens. Classes: accuracy, Matthews correlation, and with two of them F1 of the second; scores:
// Pearson and Spearman correlation, left out where they are undefined; spans: exact match and the
// mean F1 of tokens, of samples that have an answer; hidden tokens: accuracy.
Metrics measure(const Task& task, const Dataset& data, const std::vector<double>& answers,
                std::int64_t targets);

}  // namespace laconic
