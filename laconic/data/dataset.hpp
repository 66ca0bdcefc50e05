// data/dataset.hpp — a prepared dataset as samples, whatever they are made of.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "laconic/base/task_kind.hpp"
#include "laconic/data/record.hpp"
#include "laconic/data/window.hpp"

namespace laconic {

using Dataset = std::variant<WindowedDataset, RecordDataset, SentenceDataset>;

// What samples are asked for, as far as it decides how they are cut.
struct SampleKind {
  TaskKind task = TaskKind::causal;
  bool has_next_sentence = false;  // masked: pairs of sentences
};

// Opens PREFIX for samples of `context` tokens and reads it all once: check sums, where there are
// any, every token against the model's vocabulary, and labels. Text becomes windows, `stride`
// tokens apart (0: as far as they are long), which is for causal alone. Throws ConfigError, which
// names both kinds when the data is made for another task; FileError, SystemError.
Dataset open_dataset(const std::string& prefix, std::int64_t context, std::int64_t vocabulary,
                     std::int64_t stride = 0, SampleKind kind = {});

std::uint64_t samples_in(const Dataset& data);
const IndexedDataset& tokens_in(const Dataset& data);
const TokenSet& set_in(const Dataset& data);
bool has_prompts(const Dataset& data);  // documents are prompts and completions

}  // namespace laconic
