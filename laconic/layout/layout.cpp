#include "laconic/layout/layout.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

bool is_replicated(const Layout& layout) {
  return axes_of(layout).empty();
}

Axes axes_of(const Layout& layout) {
  Axes all;
  for (const Axes& axes : layout.by_dim) all.insert(all.end(), axes.begin(), axes.end());
  return all;
}

int extent(const Mesh& mesh, const Axes& axes) {
  int product = 1;
  for (const Axis axis : axes) product *= extent(mesh, axis);
  return product;
}

int index_along(const Mesh& mesh, const Coord& coord, const Axes& axes) {
  int index = 0;
  for (const Axis axis : axes) index = index * extent(mesh, axis) + along(coord, axis);
  return index;
}

Group group_along(const Mesh& mesh, Rank rank, const Axes& axes) {
  Group group = group_of(mesh, rank, axes);
  std::ranges::sort(group, {}, [&](Rank r) { return index_along(mesh, coord_of(mesh, r), axes); });
  return group;
}

Range block_of(std::int64_t size, int count, int index) {
  const std::int64_t block = (size + count - 1) / count;
  return {std::min(size, block * index), std::min(size, block * (index + 1))};
}

Range share_of(std::int64_t samples, int count, int index) {
  return {samples * index / count, samples * (index + 1) / count};
}

std::vector<Range> shard_of(const Layout& layout, const Mesh& mesh, const Coord& coord,
                            std::span<const std::int64_t> sizes) {
  LACONIC_ASSERT(layout.by_dim.size() <= sizes.size(),
                 fmt::format("{} for {} dims", to_text(layout), sizes.size()));
  std::vector<Range> shard;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const Axes axes = d < layout.by_dim.size() ? layout.by_dim[d] : Axes();
    const auto part = axes == Axes{Axis::dp} ? share_of : block_of;
    shard.push_back(part(sizes[d], extent(mesh, axes), index_along(mesh, coord, axes)));
  }
  return shard;
}

std::vector<std::int64_t> sizes_of(const std::vector<Range>& shard) {
  std::vector<std::int64_t> sizes;
  for (const Range& range : shard) sizes.push_back(range.size());
  return sizes;
}

std::vector<ShardRun> runs_of(const std::vector<Range>& shard,
                              std::span<const std::int64_t> sizes) {
  // Behind dim d everything is here; `length` elements of it lie beside each other.
  std::size_t d = sizes.size();
  std::int64_t length = 1;
  while (d > 0 && shard[d - 1].size() == sizes[d - 1]) length *= sizes[--d];
  std::int64_t step =
      length;  // elements of the whole tensor from one index of dim d - 1 to the next
  std::vector<ShardRun> runs = {{0, 0, length}};
  if (d > 0) {
    --d;
    runs = {{shard[d].begin * step, 0, shard[d].size() * step}};
    step *= sizes[d];
  }
  // Each dim before repeats what there is.
  for (; d > 0; --d) {
    std::vector<ShardRun> all;
    const std::int64_t held = runs.empty() ? 0 : runs.back().shard + runs.back().elements;
    for (std::int64_t at = shard[d - 1].begin; at < shard[d - 1].end; ++at)
      for (const ShardRun& run : runs)
        all.push_back(
            {at * step + run.whole, (at - shard[d - 1].begin) * held + run.shard, run.elements});
    runs = std::move(all);
    step *= sizes[d - 1];
  }
  std::erase_if(runs, [](const ShardRun& run) { return run.elements == 0; });
  return runs;
}

namespace {

Axes axes_beside(const Layout& layout, std::span<const Axis> all) {
  const Axes used = axes_of(layout);
  Axes beside;
  for (const Axis axis : all)
    if (std::ranges::find(used, axis) == used.end()) beside.push_back(axis);
  return beside;
}

}  // namespace

Group replicas_of(const Layout& layout, const Mesh& mesh, Rank rank) {
  return group_of(mesh, rank,
                  axes_beside(layout, std::array{Axis::dp, Axis::tp0, Axis::tp1, Axis::tp2}));
}

bool speaks_for(const Layout& layout, const Mesh& mesh, const Coord& coord) {
  return index_along(mesh, coord, axes_beside(layout, kTensorAxes)) == 0;
}

Problems check(const Layout& layout, const Mesh& mesh, std::span<const std::int64_t> sizes,
               const std::string& name) {
  Problems problems;
  if (layout.by_dim.size() > sizes.size())
    problems.push_back({name, fmt::format("has {} dims, and {} cuts {}", sizes.size(),
                                          to_text(layout), layout.by_dim.size())});
  Axes seen;
  for (std::size_t d = 0; d < std::min(sizes.size(), layout.by_dim.size()); ++d) {
    for (const Axis axis : layout.by_dim[d]) {
      if (std::ranges::find(seen, axis) != seen.end())
        problems.push_back({name, fmt::format("{} cuts it twice", name_of(axis))});
      seen.push_back(axis);
    }
    const int parts = extent(mesh, layout.by_dim[d]);
    if (sizes[d] % parts != 0)
      problems.push_back({name, fmt::format("dim {} has {} elements, which {} = {} does not divide",
                                            d, sizes[d], to_text(layout.by_dim[d]), parts)});
  }
  return problems;
}

std::string to_text(const Axes& axes) {
  std::vector<std::string> names;
  for (const Axis axis : axes) names.emplace_back(name_of(axis));
  return names.empty() ? "-" : join(names, " x ");
}

std::string to_text(const Layout& layout) {
  if (is_replicated(layout)) return "replicated";
  std::vector<std::string> dims;
  for (const Axes& axes : layout.by_dim) dims.push_back(to_text(axes));
  return "[" + join(dims, ", ") + "]";
}

}  // namespace laconic
