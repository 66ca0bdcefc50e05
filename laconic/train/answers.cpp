#include "laconic/train/answers.hpp"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <limits>

#include "laconic/base/target.hpp"
#include "laconic/metric/metric.hpp"

namespace laconic {

namespace {

at::Tensor as_doubles(const at::Tensor& x) {
  return x.to(at::kCPU, at::kDouble).contiguous();
}

std::vector<double> list_of(const at::Tensor& x) {
  const at::Tensor host = as_doubles(x);
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
}

// The fields of one sample, as whole numbers.
class SampleFields {
 public:
  SampleFields(const Task& task, const Dataset& data)
      : task_(task), data_(data), specs_(fields_of(task, tokens_per_sample(task, data))) {
    for (const FieldSpec& spec : specs_)
      rows_.emplace_back(static_cast<std::size_t>(spec.per_sample[0]));
  }
  void read(std::uint64_t sample) {
    std::vector<std::span<std::int64_t>> rows(rows_.begin(), rows_.end());
    read_sample(task_, data_, {sample}, rows);
  }
  std::int64_t first_of(std::string_view field) const {
    const auto found = std::ranges::find(specs_, field, &FieldSpec::name);
    return rows_[static_cast<std::size_t>(found - specs_.begin())].front();
  }

 private:
  const Task& task_;
  const Dataset& data_;
  std::vector<FieldSpec> specs_;
  std::vector<std::vector<std::int64_t>> rows_;
};

Metrics measure_classes(const Task& task, const Dataset& data, const std::vector<double>& answers) {
  SampleFields fields(task, data);
  std::vector<std::int32_t> predicted, actual;
  for (std::size_t s = 0; s < answers.size(); ++s) {
    fields.read(s);
    predicted.push_back(static_cast<std::int32_t>(answers[s]));
    actual.push_back(static_cast<std::int32_t>(fields.first_of("label")));
  }
  Metrics metrics = {{"accuracy", accuracy(predicted, actual)}};
  const auto* records = std::get_if<RecordDataset>(&data);
  if (records != nullptr && records->info().label_names.size() == 2)
    metrics.emplace_back("f1", f1(predicted, actual));
  metrics.emplace_back("matthews", matthews(predicted, actual));
  metrics.emplace_back("majority", majority(actual));
  return metrics;
}

Metrics measure_scores(const Dataset& data, const std::vector<double>& answers) {
  const auto& records = std::get<RecordDataset>(data);
  std::vector<double> actual;
  for (std::size_t s = 0; s < answers.size(); ++s) actual.push_back(records.label(s, 0));
  Metrics metrics;
  if (const auto value = pearson(answers, actual)) metrics.emplace_back("pearson", *value);
  if (const auto value = spearman(answers, actual)) metrics.emplace_back("spearman", *value);
  return metrics;
}

// F1 of the tokens of two spans.
double overlap(double begin, double end, double true_begin, double true_end) {
  const double common = std::min(end, true_end) - std::max(begin, true_begin) + 1;
  if (common <= 0) return 0;
  return 2 * common / (end - begin + 1 + true_end - true_begin + 1);
}

Metrics measure_spans(const Task& task, const Dataset& data, const std::vector<double>& answers) {
  SampleFields fields(task, data);
  double exact = 0, f1_sum = 0, count = 0;
  for (std::size_t s = 0; 2 * s < answers.size(); ++s) {
    fields.read(s);
    const auto begin = fields.first_of("start"), end = fields.first_of("end");
    if (begin == kNoTarget || end == kNoTarget) continue;
    const double b = static_cast<double>(begin), e = static_cast<double>(end);
    exact += answers[2 * s] == b && answers[2 * s + 1] == e ? 1 : 0;
    f1_sum += overlap(answers[2 * s], answers[2 * s + 1], b, e);
    count += 1;
  }
  if (count == 0) return {};
  return {{"exact_match", exact / count}, {"f1", f1_sum / count}};
}

std::vector<double> spans_from(const Batch& batch, const at::Tensor& ends) {
  std::vector<double> answers;
  const at::Tensor host = as_doubles(ends);
  const at::Tensor types = batch["types"].to(at::kCPU).contiguous();
  const at::Tensor lengths = batch["length"].to(at::kCPU).contiguous();
  for (std::int64_t s = 0; s < host.size(0); ++s) {
    const std::span<const std::int64_t> row(types[s].data_ptr<std::int64_t>(),
                                            static_cast<std::size_t>(types.size(1)));
    const AnswerRange best = best_answer(host[s], row, lengths[s].item<std::int64_t>());
    answers.push_back(static_cast<double>(best.begin));
    answers.push_back(static_cast<double>(best.end));
  }
  return answers;
}

bool has_sentence_pairs(const Task& task) {
  const auto* masked = std::get_if<Masked>(&task);
  return masked != nullptr && masked->has_next_sentence;
}

// For each sample how many hidden tokens were found, and with pairs whether the second was told.
std::vector<double> hidden_from(const Task& task, const Batch& batch,
                                const Predictions& predictions) {
  const at::Tensor& targets = batch["targets"];
  const at::Tensor found = predictions.first.eq(targets).logical_and(targets.ne(kNoTarget)).sum(-1);
  if (!has_sentence_pairs(task)) return list_of(found);
  const at::Tensor is_told = predictions.second.argmax(-1).eq(batch["next"].flatten());
  return list_of(at::stack({found, is_told.to(found.scalar_type())}, 1).flatten());
}

Metrics measure_hidden(const Task& task, const std::vector<double>& answers, std::int64_t targets) {
  const std::size_t numbers = numbers_per_answer(task);
  double found = 0, told = 0;
  for (std::size_t i = 0; i < answers.size(); i += numbers) {
    found += answers[i];
    if (numbers == 2) told += answers[i + 1];
  }
  Metrics metrics = {{"accuracy", found / static_cast<double>(targets)}};
  if (numbers == 2)
    metrics.emplace_back("next_accuracy", 2 * told / static_cast<double>(answers.size()));
  return metrics;
}

}  // namespace

std::size_t numbers_per_answer(const Task& task) {
  if (std::holds_alternative<AnswerSpan>(task) || has_sentence_pairs(task)) return 2;
  return std::holds_alternative<Classify>(task) || std::holds_alternative<Regress>(task) ||
                 std::holds_alternative<Masked>(task)
             ? 1
             : 0;
}

AnswerRange best_answer(const at::Tensor& ends, std::span<const std::int64_t> types,
                        std::int64_t length) {
  const at::Tensor log_p = ends.narrow(1, 0, length).log_softmax(-1).contiguous();
  const double* begins = log_p.data_ptr<double>();
  const double* lasts = begins + length;
  AnswerRange best{.log_probability = -std::numeric_limits<double>::infinity()};
  const auto consider = [&](std::int64_t begin, std::int64_t end) {
    const double log_probability = begins[begin] + lasts[end];
    if (log_probability > best.log_probability) best = {begin, end, log_probability};
  };
  consider(0, 0);
  // Between what stands before the text and the special token that ends it.
  const auto second = std::ranges::find(types.first(static_cast<std::size_t>(length)), 1);
  const std::int64_t at = second - types.begin();
  const std::int64_t first = at < length ? at : 1, end = length - 1;
  for (std::int64_t b = first; b < end; ++b)
    for (std::int64_t e = b; e < std::min(end, b + kLongestAnswer); ++e) consider(b, e);
  return best;
}

std::vector<double> answers_from(const Task& task, const Batch& batch,
                                 const Predictions& predictions) {
  if (std::holds_alternative<Classify>(task)) return list_of(predictions.first.argmax(-1));
  if (std::holds_alternative<Regress>(task)) return list_of(predictions.first.flatten());
  if (std::holds_alternative<AnswerSpan>(task)) return spans_from(batch, predictions.first);
  if (!std::holds_alternative<Masked>(task)) return {};
  return hidden_from(task, batch, predictions);
}

Metrics measure(const Task& task, const Dataset& data, const std::vector<double>& answers,
                std::int64_t targets) {
  if (answers.empty()) return {};
  if (std::holds_alternative<Classify>(task)) return measure_classes(task, data, answers);
  if (std::holds_alternative<Regress>(task)) return measure_scores(data, answers);
  if (std::holds_alternative<AnswerSpan>(task)) return measure_spans(task, data, answers);
  return measure_hidden(task, answers, targets);
}

}  // namespace laconic
