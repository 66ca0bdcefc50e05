#include "laconic/schedule/fragment.hpp"

#include <fmt/format.h>

#include <vector>

namespace laconic {

namespace {

std::int64_t layers_in(const FragmentSpec& spec) {
  return spec.blocks - 2;
}

bool is_one(const FragmentSpec& spec) {
  return spec.layers == 0 || layers_in(spec) < 1;
}

// Fragments that have layers.
std::int64_t layer_fragments(const FragmentSpec& spec) {
  return (layers_in(spec) + spec.layers - 1) / spec.layers;
}

// The step of a round after which a fragment leaves; 0: its last one.
std::int64_t turn_of(const FragmentSpec& spec, std::int64_t fragment) {
  return fragment * spec.steps / fragment_count(spec);
}

std::string fragments_after(const FragmentSpec& spec, std::int64_t step, bool leaves) {
  std::vector<std::int64_t> found;
  for (std::int64_t f = 0; f < fragment_count(spec); ++f)
    if (leaves ? leaves_after(spec, f, step) : comes_after(spec, f, step)) found.push_back(f);
  return fmt::format("{}", fmt::join(found, ", "));
}

}  // namespace

Problems check(const FragmentSpec& spec) {
  Problems problems;
  const auto at_least = [&](const char* name, std::int64_t value, std::int64_t least) {
    if (value < least) problems.push_back({name, fmt::format("{} is less than {}", value, least)});
  };
  at_least("blocks", spec.blocks, 1);
  at_least("layers", spec.layers, 0);
  at_least("steps", spec.steps, 1);
  at_least("overlap", spec.overlap, 0);
  if (!problems.empty()) return problems;
  if (spec.overlap >= spec.steps)
    problems.push_back(
        {"overlap", fmt::format("{} steps of a round of {}: a fragment must come before it leaves "
                                "again",
                                spec.overlap, spec.steps)});
  if (fragment_count(spec) > spec.steps)
    problems.push_back(
        {"layers", fmt::format("{} layers in fragments of {}, and embedding and "
                               "head, are {} fragments for {} steps: every "
                               "fragment needs a step of its own",
                               layers_in(spec), spec.layers, fragment_count(spec), spec.steps)});
  return problems;
}

std::int64_t fragment_count(const FragmentSpec& spec) {
  return is_one(spec) ? 1 : layer_fragments(spec) + 1;
}

std::int64_t fragment_of(const FragmentSpec& spec, std::int64_t block) {
  if (is_one(spec)) return 0;
  if (block == 0 || block == spec.blocks - 1) return layer_fragments(spec);
  const std::int64_t layer = block - 1;
  return spec.order == FragmentOrder::strided ? layer % layer_fragments(spec) : layer / spec.layers;
}

bool leaves_after(const FragmentSpec& spec, std::int64_t fragment, std::int64_t step) {
  return step > 0 && step % spec.steps == turn_of(spec, fragment);
}

bool comes_after(const FragmentSpec& spec, std::int64_t fragment, std::int64_t step) {
  return leaves_after(spec, fragment, step - spec.overlap);
}

std::string to_text(const FragmentSpec& spec) {
  std::string text;
  for (std::int64_t f = 0; f < fragment_count(spec); ++f) {
    std::vector<std::int64_t> blocks;
    for (std::int64_t b = 0; b < spec.blocks; ++b)
      if (fragment_of(spec, b) == f) blocks.push_back(b);
    text += fmt::format("fragment {}: block{} {}\n", f, blocks.size() == 1 ? "" : "s",
                        fmt::join(blocks, ", "));
  }
  text += "after step  leaves  comes\n";
  for (std::int64_t s = spec.steps + 1; s <= 2 * spec.steps + spec.overlap; ++s) {
    const bool is_in_round = s <= 2 * spec.steps;
    const std::string leaving = is_in_round ? fragments_after(spec, s, true) : "";
    const std::string coming = fragments_after(spec, s, false);
    if (!leaving.empty() || !coming.empty())
      text += fmt::format("{:>10}  {:>6}  {:>5}\n", s, leaving, coming);
  }
  return text;
}

}  // namespace laconic
