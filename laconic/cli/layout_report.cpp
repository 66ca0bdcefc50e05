#include "laconic/cli/layout_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "laconic/architecture/grid_cost.hpp"
#include "laconic/base/text.hpp"
#include "laconic/report/table.hpp"

namespace laconic {

namespace {

constexpr std::size_t kMostNames = 3;  // of parameters over one picture

// --- parameters that are cut alike

struct ParameterKind {
  std::vector<std::string> names;
  std::vector<std::int64_t> sizes;  // as they are cut
  Layout layout;
  DrawnDims drawn;
};

// What outputs are several of is left out.
DrawnDims drawn_dims(const ParameterSpec& p) {
  const bool is_vector = p.sizes.size() == 1, has_parts = p.parts > 1;
  if (is_vector) return {.rows = {}, .columns = has_parts ? 1U : 0U};
  if (!has_parts) return {.rows = 0, .columns = 1};
  return {.rows = p.is_out_in ? 1 : 0, .columns = 2};
}

std::vector<ParameterKind> kinds_of(const LayoutSubject& subject) {
  std::vector<ParameterKind> kinds;
  std::set<std::string> seen;
  for (const ParameterSpec& p : subject.spec.parameters) {
    if (!seen.insert(common_name(p)).second) continue;
    ParameterKind kind{.names = {common_name(p)},
                       .sizes = cut_sizes(p.sizes, p.parts, p.is_out_in),
                       .layout = {},
                       .drawn = drawn_dims(p)};
    kind.layout = layout_of(subject.plan, p.role, p.is_out_in, kind.sizes.size());
    const auto same = std::ranges::find_if(kinds, [&](const ParameterKind& other) {
      return other.sizes == kind.sizes && other.layout == kind.layout;
    });
    if (same == kinds.end())
      kinds.push_back(std::move(kind));
    else
      same->names.push_back(kind.names[0]);
  }
  return kinds;
}

std::string sizes_to_text(const std::vector<std::int64_t>& sizes) {
  return fmt::format("{}", fmt::join(sizes, " x "));
}

std::string cuts_to_text(const Layout& layout) {
  std::vector<std::string> cuts;
  for (std::size_t d = 0; d < layout.by_dim.size(); ++d)
    if (!layout.by_dim[d].empty())
      cuts.push_back(fmt::format("dim {} by {}", d, to_text(layout.by_dim[d])));
  return cuts.empty() ? "whole on every rank" : join(cuts, ", ");
}

// Rank 0 has the first block of everything, which none is larger than.
std::vector<std::int64_t> largest_shard(const LayoutSubject& subject, const Layout& layout,
                                        const std::vector<std::int64_t>& sizes) {
  return sizes_of(shard_of(layout, subject.mesh, coord_of(subject.mesh, 0), sizes));
}

std::string title_of(const LayoutSubject& subject, const ParameterKind& kind) {
  std::vector<std::string> names = kind.names;
  const std::size_t more = names.size() > kMostNames ? names.size() - kMostNames : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{}, {}: {}; {} on a rank", join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "", sizes_to_text(kind.sizes),
                     cuts_to_text(kind.layout),
                     sizes_to_text(largest_shard(subject, kind.layout, kind.sizes)));
}

std::int64_t elements_on_a_rank(const LayoutSubject& subject) {
  std::int64_t sum = 0;
  for (const ParameterSpec& p : subject.spec.parameters) {
    const std::vector<std::int64_t> sizes = cut_sizes(p.sizes, p.parts, p.is_out_in);
    std::int64_t product = 1;
    for (const std::int64_t size :
         largest_shard(subject, layout_of(subject.plan, p.role, p.is_out_in, sizes.size()), sizes))
      product *= size;
    sum += product;
  }
  return sum;
}

// --- activations

std::int64_t width_of(const ModelSpec& spec) {
  return spec.blocks.front().out.back().per_sample.back();
}

// Outputs of the widest map into a branch, each part of them by itself.
std::int64_t inner_width_of(const ModelSpec& spec) {
  std::int64_t width = 0;
  for (const ParameterSpec& p : spec.parameters)
    if (p.role == Role::up) width = std::max(width, p.sizes[p.is_out_in ? 0 : 1] / p.parts);
  return width;
}

LayoutPicture picture_of(const LayoutSubject& subject, const char* name,
                         const ActivationLayout& activation, std::int64_t width) {
  const Layout layout{{activation.rows, activation.features}};
  const std::vector<std::int64_t> sizes = {subject.samples, width};
  const auto cut = [](const Axes& axes) {
    return axes.empty() ? std::string("whole") : "by " + to_text(axes);
  };
  return picture_of(
      fmt::format("{}, {} samples x {} features: samples {}, features {}; {} on a rank", name,
                  subject.samples, width, cut(activation.rows), cut(activation.features),
                  sizes_to_text(largest_shard(subject, layout, sizes))),
      layout, subject.mesh, sizes, {.rows = 0, .columns = 1});
}

// --- what moves

bool has_role(const ModelSpec& spec, Role role) {
  return std::ranges::any_of(spec.parameters,
                             [&](const ParameterSpec& p) { return p.role == role; });
}

std::string gather_to_text(const Axes& axes, const Mesh& mesh) {
  return extent(mesh, axes) == 1 ? "-" : "gather " + to_text(axes);
}
std::string move_to_text(const Move& move, const Mesh& mesh) {
  return extent(mesh, move.axes) == 1 ? "-" : to_text(move);
}

std::string moves_to_text(const LayoutSubject& subject) {
  Table table({{"map", Align::left},
               {"input", Align::left},
               {"weights", Align::left},
               {"output", Align::left}});
  const auto add = [&](const char* name, const Move& in, const Axes& weight, const Move& out) {
    table.add({name, move_to_text(in, subject.mesh), gather_to_text(weight, subject.mesh),
               move_to_text(out, subject.mesh)});
  };
  constexpr std::pair<Role, const char*> kMaps[] = {
      {Role::up, "into a branch"},
      {Role::down, "out of a branch"},
      {Role::across, "from the stream to itself"},
      {Role::stream_narrow, "from the stream to few numbers"},
      {Role::inner_narrow, "from a branch to few numbers"}};
  for (const auto& [role, name] : kMaps) {
    if (!has_role(subject.spec, role)) continue;
    const LinearPlan plan = linear_plan(subject.plan, role);
    add(name, plan.in, plan.weight, plan.out);
  }
  const TablePlan tokens = table_plan(subject.plan);
  add("look-up of tokens", {}, tokens.lookup_weight, tokens.lookup_out);
  add("to the vocabulary", tokens.head.in, tokens.head.weight, tokens.head.out);
  return to_text(table);
}

// --- what a rank receives

struct BlockKind {
  std::string name;
  std::size_t first = 0;  // block of that kind
  int count = 0;
};

std::vector<BlockKind> block_kinds(const ModelSpec& spec) {
  std::vector<BlockKind> kinds;
  for (std::size_t b = 0; b < spec.blocks.size(); ++b) {
    const auto same = std::ranges::find(kinds, spec.blocks[b].kind, &BlockKind::name);
    if (same == kinds.end())
      kinds.push_back({spec.blocks[b].kind, b, 1});
    else
      ++same->count;
  }
  return kinds;
}

struct PassTraffic {
  int calls = 0;
  std::array<double, 3> by_axis = {};
  double all = 0;
};

PassTraffic pass_traffic(const LayoutSubject& subject, std::vector<GridTraffic> traffic,
                         std::size_t block, bool is_backward) {
  std::erase_if(traffic, [&](const GridTraffic& t) {
    return t.block != block || t.is_backward != is_backward;
  });
  PassTraffic pass{.by_axis = carried(traffic, subject.mesh), .all = elements_of(traffic)};
  for (const GridTraffic& t : traffic) pass.calls += t.calls;
  return pass;
}

// As its sums go: gathered, a rank gets the whole of what every other brings.
std::vector<GridTraffic> traffic_of(const LayoutSubject& subject) {
  std::vector<GridTraffic> traffic =
      grid_traffic(subject.spec, subject.plan, {.samples = subject.samples});
  for (GridTraffic& t : traffic) t.elements = received_elements(subject.policy, t, subject.mesh);
  return traffic;
}

std::string elements_to_text(double elements) {
  return with_commas(static_cast<std::int64_t>(elements + 0.5));
}

std::string traffic_to_text(const LayoutSubject& subject) {
  const std::vector<GridTraffic> traffic = traffic_of(subject);
  Table table({{"block", Align::left},
               {"", Align::left},
               {"collectives"},
               {"tp0"},
               {"tp1"},
               {"tp2"},
               {"all"}});
  for (const BlockKind& kind : block_kinds(subject.spec))
    for (const bool is_backward : {false, true}) {
      const PassTraffic pass = pass_traffic(subject, traffic, kind.first, is_backward);
      table.add({kind.count > 1 ? fmt::format("{} (of {})", kind.name, kind.count) : kind.name,
                 is_backward ? "backward" : "forward", fmt::format("{}", pass.calls),
                 elements_to_text(pass.by_axis[0]), elements_to_text(pass.by_axis[1]),
                 elements_to_text(pass.by_axis[2]), elements_to_text(pass.all)});
    }
  return fmt::format("{}{} elements in a microbatch of all blocks\n", to_text(table),
                     elements_to_text(elements_of(traffic)));
}

// What each rank holds of a kind: begin and end of every dim.
nlohmann::ordered_json shards_to_json(const LayoutSubject& subject, const ParameterKind& kind) {
  nlohmann::ordered_json shards = nlohmann::ordered_json::array();
  for (Rank rank = 0; rank < size(subject.mesh); ++rank) {
    nlohmann::ordered_json ranges = nlohmann::ordered_json::array();
    for (const Range& range :
         shard_of(kind.layout, subject.mesh, coord_of(subject.mesh, rank), kind.sizes))
      ranges.push_back({range.begin, range.end});
    shards.push_back(std::move(ranges));
  }
  return shards;
}

nlohmann::ordered_json blocks_to_json(const LayoutSubject& subject) {
  nlohmann::ordered_json blocks = nlohmann::ordered_json::array();
  const std::vector<GridTraffic> traffic = traffic_of(subject);
  for (const BlockKind& kind : block_kinds(subject.spec))
    for (const bool is_backward : {false, true}) {
      const PassTraffic pass = pass_traffic(subject, traffic, kind.first, is_backward);
      blocks.push_back({{"block", kind.name},
                        {"blocks", kind.count},
                        {"pass", is_backward ? "backward" : "forward"},
                        {"collectives", pass.calls},
                        {"by_axis", pass.by_axis},
                        {"elements", pass.all}});
    }
  return blocks;
}

std::string order_to_text(const Mesh& mesh) {
  std::vector<std::string> names;
  for (const int axis : mesh.order)
    names.emplace_back(name_of(kTensorAxes.at(static_cast<std::size_t>(axis))));
  return join(names, ", ");
}

// Where each rank sits: tp0 and tp1 down, tp2 across.
LayoutPicture places_of(const LayoutSubject& subject) {
  const auto [pi, pj, pl] = subject.mesh.tp;
  const std::vector<std::int64_t> sizes = {pi * pj, pl};
  return picture_of(
      fmt::format("Ranks: {} coordinates of tp0 x tp1 down, {} of tp2 across", pi * pj, pl),
      {{{Axis::tp0, Axis::tp1}, {Axis::tp2}}}, subject.mesh, sizes, {.rows = 0, .columns = 1});
}

std::string head_line(const LayoutSubject& subject) {
  const auto [pi, pj, pl] = subject.mesh.tp;
  const std::int64_t all = parameter_count(subject.spec);
  return fmt::format(
      "{}: {} parameters, {} on a rank\n"
      "{} on {} x {} x {} = {} ranks, the axes in the order {}; microbatches of {} samples of {} "
      "tokens\n",
      subject.name, with_commas(all), with_commas(elements_on_a_rank(subject)),
      name_of(subject.plan.method), pi, pj, pl, tp_size(subject.mesh), order_to_text(subject.mesh),
      subject.samples, subject.tokens);
}

}  // namespace

std::vector<LayoutPicture> pictures_of(const LayoutSubject& subject) {
  std::vector<LayoutPicture> pictures = {
      places_of(subject),
      picture_of(subject, "Stream", stream_of(subject.plan), width_of(subject.spec)),
      picture_of(subject, "Inner", inner_of(subject.plan), inner_width_of(subject.spec))};
  for (const ParameterKind& kind : kinds_of(subject))
    pictures.push_back(
        picture_of(title_of(subject, kind), kind.layout, subject.mesh, kind.sizes, kind.drawn));
  return pictures;
}

std::string describe(const LayoutSubject& subject) {
  std::string text = head_line(subject);
  for (const LayoutPicture& picture : pictures_of(subject))
    text += fmt::format("\n{}\n{}", picture.title, to_text(picture));
  text += "\nWhat moves in forward; backward does the adjoint:\n\n" + moves_to_text(subject);
  text += "\nElements that a rank receives, by axis:\n\n" + traffic_to_text(subject);
  return text;
}

nlohmann::ordered_json to_json(const LayoutSubject& subject) {
  nlohmann::ordered_json kinds = nlohmann::ordered_json::array();
  for (const ParameterKind& kind : kinds_of(subject))
    kinds.push_back({{"names", kind.names},
                     {"sizes", kind.sizes},
                     {"layout", to_text(kind.layout)},
                     {"shards", shards_to_json(subject, kind)}});
  return {{"model", subject.name},
          {"method", name_of(subject.plan.method)},
          {"grid", subject.mesh.tp},
          {"order", subject.mesh.order},
          {"samples", subject.samples},
          {"parameters", parameter_count(subject.spec)},
          {"parameters_on_a_rank", elements_on_a_rank(subject)},
          {"kinds", std::move(kinds)},
          {"blocks", blocks_to_json(subject)}};
}

}  // namespace laconic
