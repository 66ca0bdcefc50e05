#include "laconic/architecture/projection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>

#include "laconic/architecture/model_spec.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

std::string layer_list(const std::vector<std::int64_t>& after) {
  std::vector<std::string> numbers;
  for (const std::int64_t block : after) numbers.push_back(fmt::to_string(block));
  return join(numbers, ",");
}

std::optional<std::vector<std::int64_t>> parse_layer_list(std::string_view text) {
  std::vector<std::int64_t> numbers;
  if (text.empty()) return numbers;
  for (const std::string& word : split(text, ',')) {
    const std::string_view digits = trim(word);
    std::int64_t number = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, number);
    if (error != std::errc() || stop != end) return std::nullopt;
    numbers.push_back(number);
  }
  return numbers;
}

std::string to_text(const Projection& p, std::int64_t width) {
  return fmt::format("to {} of {} behind layer{} {} (basis {}, anchor {})", p.rank, width,
                     p.after.size() == 1 ? "" : "s", layer_list(p.after),
                     name_in(kBasisKindNames, p.basis), name_in(kAnchorKindNames, p.anchor));
}

Problems check(const Projection& p, std::int64_t layers, std::int64_t width) {
  Problems problems;
  if (p.is_empty()) return problems;
  if (!std::ranges::is_sorted(p.after, std::ranges::less_equal()))
    problems.push_back(
        {"model.project_after", fmt::format("{} do not ascend", layer_list(p.after))});
  for (const std::int64_t block : p.after)
    if (block < 1 || block > layers)
      problems.push_back({"model.project_after",
                          fmt::format("layer {} of {}: they count from 1, and what the embedding "
                                      "puts out is not projected",
                                      block, layers)});
  if (is_code(p.basis) && p.anchor != AnchorKind::none)
    problems.push_back(
        {"model.project_anchor",
         fmt::format("\"{}\" with learned maps (basis {}), which nobody has built: "
                     "take \"none\"",
                     name_in(kAnchorKindNames, p.anchor), name_in(kBasisKindNames, p.basis))});
  if (p.rank < 1 || p.rank > width)
    problems.push_back(
        {"model.project_rank", fmt::format("rank {} of a stream of width {}: 1 to {} are possible",
                                           p.rank, width, width)});
  return problems;
}

namespace {

class SeamBuilder {
 public:
  SeamBuilder(ModelSpec& spec, const Projection& projection, std::int64_t vocabulary,
              std::int64_t positions)
      : spec_(spec), projection_(projection), vocabulary_(vocabulary), positions_(positions) {}

  void add(std::int64_t block) {
    BlockSpec &before = spec_.blocks[static_cast<std::size_t>(block)],
              &behind = spec_.blocks[static_cast<std::size_t>(block) + 1];
    SeamTensor& stream = before.out.front();
    ProjectedSeam seam{.block = block,
                       .rank = projection_.rank,
                       .width = stream.per_sample.back(),
                       .seed = projection_.seed};
    stream.name = "c";
    stream.per_sample.back() = seam.rank;
    const auto product = static_cast<double>(elements_of(stream) * seam.width);
    before.multiply_adds += product;
    behind.multiply_adds += product;
    behind.kept += elements_of(stream);
    // They cost something else than others of their kind.
    before.kind += ", projected";
    behind.kind += ", lifted";
    add_parameters(seam, before, behind);
    spec_.projections.push_back(seam);
  }

 private:
  void add_parameters(ProjectedSeam& seam, BlockSpec& before, BlockSpec& behind) {
    const std::string name = fmt::format("{}{}.", kBoundaryPrefix, seam.block);
    if (is_code(projection_.basis))
      add_maps(seam, name, before, behind);
    else if (projection_.basis != BasisKind::seed)
      seam.basis = take({.name = name + "basis",
                         .sizes = {seam.rank, seam.width},
                         .is_basis = true,
                         .is_frozen = projection_.basis == BasisKind::pca},
                        {&before, &behind});
    if (projection_.anchor == AnchorKind::initial) {
      seam.fixed = fixed_like(0, "project.tokens", {&before, &behind});
      if (positions_ > 0) seam.fixed_at = fixed_like(1, "project.positions", {&before, &behind});
    }
    if (projection_.anchor != AnchorKind::learned) return;
    seam.sent = take_table(name + "sent", vocabulary_, seam.rank, before);
    if (positions_ > 0)
      seam.sent_at = take_table(name + "sent_positions", positions_, seam.rank, before);
    seam.received = take_table(name + "received", vocabulary_, seam.width, behind);
    if (positions_ > 0)
      seam.received_at = take_table(name + "received_positions", positions_, seam.width, behind);
  }

  // As published: what comes out of both has about the size of what went in. Both begin alike
  // where they are not noise.
  void add_maps(ProjectedSeam& seam, const std::string& name, BlockSpec& before,
                BlockSpec& behind) {
    const double deviation = std::sqrt(2 / static_cast<double>(seam.width + seam.rank));
    ParameterSpec map{.name = name + "encoder",
                      .sizes = {seam.rank, seam.width},
                      .deviation = deviation,
                      .begins_orthonormal = !projection_.is_drawn};
    if (projection_.basis == BasisKind::tied) {
      seam.basis = take(map, {&before, &behind});
      return;
    }
    seam.basis = take(map, {&before});
    map.name = name + "decoder";
    if (map.begins_orthonormal) map.begins_as = name + "encoder";
    seam.decoder = take(map, {&behind});
  }

  // One for all boundaries: what the embedding's table at place `at` begins with.
  std::size_t fixed_like(std::size_t at, const std::string& name,
                         std::initializer_list<BlockSpec*> users) {
    std::size_t& number = fixed_[at];
    const ParameterSpec table = spec_.parameters[spec_.blocks.front().uses[at]];
    if (number == 0)
      number = take({.name = name,
                     .sizes = table.sizes,
                     .mean = table.mean,
                     .deviation = table.deviation,
                     .is_table = true,
                     .begins_as = table.name,
                     .is_frozen = true},
                    {});
    for (BlockSpec* user : users)
      if (std::ranges::find(user->uses, number) == user->uses.end()) {
        user->uses.push_back(number);
        std::ranges::sort(user->uses);
      }
    return number;
  }

  // Tables begin with zeros: as if there were no anchor.
  std::size_t take_table(std::string name, std::int64_t rows, std::int64_t columns,
                         BlockSpec& user) {
    return take({.name = std::move(name), .sizes = {rows, columns}, .is_table = true}, {&user});
  }

  std::size_t take(ParameterSpec parameter, std::initializer_list<BlockSpec*> users) {
    parameter.is_of_boundary = true;
    for (BlockSpec* user : users) user->uses.push_back(spec_.parameters.size());
    spec_.parameters.push_back(std::move(parameter));
    return spec_.parameters.size() - 1;
  }

  ModelSpec& spec_;
  const Projection& projection_;
  const std::int64_t vocabulary_, positions_;
  std::array<std::size_t, 2> fixed_ = {};  // 0: not there yet
};

}  // namespace

void add_projection(ModelSpec& spec, const Projection& projection, std::int64_t vocabulary,
                    std::int64_t positions) {
  SeamBuilder builder(spec, projection, vocabulary, positions);
  for (const std::int64_t block : projection.after) builder.add(block);
}

}  // namespace laconic
