#include "laconic/architecture/family.hpp"

#include <fmt/format.h>

namespace laconic {

std::int64_t context_of(const Family& family) {
  return std::visit([](const auto& shape) { return shape.context; }, family);
}

std::int64_t vocabulary_of(const Family& family) {
  return std::visit([](const auto& shape) { return shape.vocabulary; }, family);
}

namespace {

std::string describe(const GptShape& s) {
  return fmt::format("GPT, {} layers, width {}, {} heads", s.layers, s.width, s.heads);
}

std::vector<std::pair<std::string, std::int64_t>> list_sizes(const GptShape& s) {
  return {{"layers", s.layers},
          {"width", s.width},
          {"heads", s.heads},
          {"context", s.context},
          {"vocabulary", s.vocabulary}};
}

}  // namespace

std::string to_text(const Family& family) {
  return std::visit([](const auto& shape) { return describe(shape); }, family);
}

std::vector<std::pair<std::string, std::int64_t>> sizes_of(const Family& family) {
  return std::visit([](const auto& shape) { return list_sizes(shape); }, family);
}

Problems check(const Family& family) {
  const std::int64_t layers = std::visit([](const auto& shape) { return shape.layers; }, family);
  if (layers <= kMostLayers) return {};
  return {{"model.layers", fmt::format("{} layers; at most {} are possible", layers, kMostLayers)}};
}

Problems compare(const Family& found, const Family& wanted, const std::string& folder) {
  if (found.index() != wanted.index())
    return {{folder,
             fmt::format("holds a {}, the run asks for a {}", to_text(found), to_text(wanted))}};
  Problems problems;
  const auto has = sizes_of(found), wants = sizes_of(wanted);
  for (std::size_t i = 0; i < has.size(); ++i)
    if (has[i] != wants[i])
      problems.push_back({folder, fmt::format("was made with model.{} = {}, the run asks for {}",
                                              has[i].first, has[i].second, wants[i].second)});
  return problems;
}

}  // namespace laconic
