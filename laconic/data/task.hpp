// data/task.hpp — what a model is asked about a sample. Pure.
//
// A task turns the number of a sample into named fields; a batch is these fields of
// several samples (train/batch.hpp). To add a task: a struct here, a line in the variant,
// and its functions in task.cpp. With t tokens of context:
//
//   Causal, Completion   ids [t], targets [t]
//   Masked               ids [t], types [t], length [1], targets [t]; next [1] with sentence pairs
//   Classify             ids [t], types [t], length [1], label [1]
//   Regress              ids [t], types [t], length [1], score [1], which is real
//   AnswerSpan           ids [t], types [t], length [1], start [1], end [1]
//   Translate            source [t], source_length [1], ids [t], targets [t]
//
// `length` counts the tokens that are no padding, `types` tells the first text (0) from the second
// (1). kNoTarget (base/target.hpp) stands wherever nothing is asked.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "laconic/data/dataset.hpp"
#include "laconic/data/token_set.hpp"

namespace laconic {

// The next token, at every position.
struct Causal {
  bool operator==(const Causal&) const = default;
};

// The next token, where it belongs to a completion; kNoTarget stands for all others. Requires:
// the data has prompts.
struct Completion {
  bool operator==(const Completion&) const = default;
};

// Tokens that are hidden (data/mask.hpp): [CLS] window [SEP]; or, with sentence pairs, whether the
// second text follows the first, too: next is 0 where it does. Draws are of (seed, epoch, sample).
struct Masked {
  SpecialTokens special;
  std::int64_t vocabulary = 0;
  std::uint64_t seed = 0;
  double share = 0.15;
  bool by_sample = false;  // the same draws in every epoch
  bool has_next_sentence = false;
  bool pads_to_longest = false;
  // By token: whether it continues the word before it; null: tokens are masked one by one.
  std::shared_ptr<const std::vector<bool>> continues = nullptr;
  bool operator==(const Masked&) const = default;
};

// The class of a text or of a pair of texts.
struct Classify {
  SpecialTokens special;
  bool pads_to_longest = false;
  bool operator==(const Classify&) const = default;
};

// A number for a text or a pair of texts.
struct Regress {
  SpecialTokens special;
  bool pads_to_longest = false;
  bool operator==(const Regress&) const = default;
};

// The first and last token of the answer to a question, the first text, in a context, the second:
// positions in ids. 0, which is [CLS], where there is no answer; kNoTarget where it was cut off.
struct AnswerSpan {
  SpecialTokens special;
  bool pads_to_longest = false;
  bool operator==(const AnswerSpan&) const = default;
};

// The target's next token, after the source and the target's tokens before it. The source ends with
// eos; ids begin with bos, or else eos, and targets end with eos. A vocabulary without eos, BERT's,
// has sep in its place, and cls for bos.
struct Translate {
  SpecialTokens special;
  bool pads_to_longest = false;
  bool operator==(const Translate&) const = default;
};

using Task = std::variant<Causal, Completion, Masked, Classify, Regress, AnswerSpan, Translate>;

// One sample's part of a field.
struct FieldSpec {
  std::string name;
  std::vector<std::int64_t> per_sample;
  bool is_real = false;  // doubles, of which rows hold the bits
  bool operator==(const FieldSpec&) const = default;
};
std::vector<FieldSpec> fields_of(const Task& task, std::int64_t tokens);

// The field that the loss is a mean over, element by element, and how many a sample has.
std::string_view predicted_field(const Task& task);
std::int64_t rows_per_sample(const Task& task, std::int64_t tokens);

// Tokens of a sample: what fields_of() is asked with. Requires: the data is of the task's kind,
// here and below.
std::int64_t tokens_per_sample(const Task& task, const Dataset& data);

// A sample as it is met in an epoch; evaluation meets all in epoch 0.
struct SampleAt {
  std::uint64_t sample = 0;
  std::uint64_t epoch = 0;
};

// Elements of the predicted field that count, among the last `tokens` of one sample where it has
// that many.
std::int64_t count_targets(const Task& task, const Dataset& data, SampleAt at, std::int64_t tokens);

// What a sample has, padding left out.
struct SampleCount {
  std::int64_t targets = 0;            // elements of the predicted field that count
  std::vector<std::int64_t> elements;  // of each field, as fields_of() lists them
};
SampleCount count_sample(const Task& task, const Dataset& data, SampleAt at);  // reads it

// Fills one sample's row of each field. Requires: rows are as fields_of() lists them.
void read_sample(const Task& task, const Dataset& data, SampleAt at,
                 std::span<const std::span<std::int64_t>> rows);

// Whether batches are cut to their longest sample instead of padded to the context.
bool pads_to_longest(const Task& task);
// Elements of a field that are no padding. Requires: rows are one sample's, filled.
std::int64_t used_elements(const Task& task, std::size_t field,
                           std::span<const std::span<std::int64_t>> rows);

}  // namespace laconic
