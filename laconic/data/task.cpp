#include "laconic/data/task.hpp"

#include <algorithm>

namespace laconic {

namespace {

std::vector<FieldSpec> list_fields(const Causal&, std::int64_t tokens) {
  return {{"ids", {tokens}}, {"targets", {tokens}}};
}

std::string_view predicted(const Causal&) {
  return "targets";
}

void read(const Causal&, const WindowedDataset& data, std::uint64_t sample,
          std::span<const std::span<std::int64_t>> rows) {
  std::vector<std::int64_t> window(data.window() + 1);
  data.read(sample, window);
  std::copy(window.begin(), window.end() - 1, rows[0].begin());
  std::copy(window.begin() + 1, window.end(), rows[1].begin());
}

}  // namespace

std::vector<FieldSpec> fields_of(const Task& task, std::int64_t tokens) {
  return std::visit([&](const auto& t) { return list_fields(t, tokens); }, task);
}

std::string_view predicted_field(const Task& task) {
  return std::visit([](const auto& t) { return predicted(t); }, task);
}

void read_sample(const Task& task, const WindowedDataset& data, std::uint64_t sample,
                 std::span<const std::span<std::int64_t>> rows) {
  std::visit([&](const auto& t) { read(t, data, sample, rows); }, task);
}

}  // namespace laconic
