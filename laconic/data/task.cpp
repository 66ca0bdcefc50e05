#include "laconic/data/task.hpp"

#include <algorithm>
#include <memory>

#include "laconic/base/target.hpp"

namespace laconic {

namespace {

// All tasks so far have these fields.
std::vector<FieldSpec> list_fields(std::int64_t tokens) {
  return {{"ids", {tokens}}, {"targets", {tokens}}};
}

std::int64_t count(const Causal&, const WindowedDataset&, std::uint64_t, std::int64_t tokens) {
  return tokens;
}

// By token of the window: whether it belongs to a completion. (Not vector<bool>: it has no spans.)
std::unique_ptr<bool[]> completions_of(const WindowedDataset& data, std::uint64_t sample) {
  auto found = std::make_unique<bool[]>(data.window() + 1);
  data.find_completions(sample, {found.get(), data.window() + 1});
  return found;
}

std::int64_t count(const Completion&, const WindowedDataset& data, std::uint64_t sample,
                   std::int64_t tokens) {
  const auto is_completion = completions_of(data, sample);
  const bool* end = is_completion.get() + data.window() + 1;
  return std::count(end - tokens, end, true);
}

void read(const Causal&, const WindowedDataset& data, std::uint64_t sample,
          std::span<const std::span<std::int64_t>> rows) {
  std::vector<std::int64_t> window(data.window() + 1);
  data.read(sample, window);
  std::copy(window.begin(), window.end() - 1, rows[0].begin());
  std::copy(window.begin() + 1, window.end(), rows[1].begin());
}

void read(const Completion&, const WindowedDataset& data, std::uint64_t sample,
          std::span<const std::span<std::int64_t>> rows) {
  read(Causal{}, data, sample, rows);
  const auto is_completion = completions_of(data, sample);
  for (std::size_t i = 0; i < rows[1].size(); ++i)
    if (!is_completion[i + 1]) rows[1][i] = kNoTarget;
}

}  // namespace

std::vector<FieldSpec> fields_of(const Task&, std::int64_t tokens) {
  return list_fields(tokens);
}

std::string_view predicted_field(const Task&) {
  return "targets";
}

std::int64_t count_targets(const Task& task, const WindowedDataset& data, std::uint64_t sample,
                           std::int64_t tokens) {
  return std::visit([&](const auto& t) { return count(t, data, sample, tokens); }, task);
}

void read_sample(const Task& task, const WindowedDataset& data, std::uint64_t sample,
                 std::span<const std::span<std::int64_t>> rows) {
  std::visit([&](const auto& t) { read(t, data, sample, rows); }, task);
}

}  // namespace laconic
