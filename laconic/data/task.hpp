// data/task.hpp — what a model is asked about a sample. Pure.
//
// A task turns the number of a sample into named fields of whole numbers; a batch is
// these fields of several samples (train/batch.hpp). To add a task: a struct here, a
// line in the variant, and its functions in task.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "laconic/data/window.hpp"

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

using Task = std::variant<Causal, Completion>;

// One sample's part of a field.
struct FieldSpec {
  std::string name;
  std::vector<std::int64_t> per_sample;
  bool operator==(const FieldSpec&) const = default;
};
std::vector<FieldSpec> fields_of(const Task& task, std::int64_t tokens);

// The field that the loss is a mean over, element by element.
std::string_view predicted_field(const Task& task);

// Elements of the predicted field that count, among the last `tokens` of one sample.
std::int64_t count_targets(const Task& task, const WindowedDataset& data, std::uint64_t sample,
                           std::int64_t tokens);

// Fills one sample's row of each field. Requires: rows are as fields_of() lists them.
void read_sample(const Task& task, const WindowedDataset& data, std::uint64_t sample,
                 std::span<const std::span<std::int64_t>> rows);

}  // namespace laconic
