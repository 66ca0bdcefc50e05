#include "laconic/architecture/grid_place.hpp"

#include "laconic/base/error.hpp"

namespace laconic {

Layout layout_at(const GridPlace& place, const ParameterSpec& p) {
  switch (place.tables.of(p.name)) {
    case ReplicaCut::columns: return {{{}, {Axis::dp}}};
    case ReplicaCut::rows: return {{{Axis::dp}, {}}};
    case ReplicaCut::whole: break;
  }
  return layout_of(place.plan, p.role, p.is_out_in,
                   cut_sizes(p.sizes, p.parts, p.is_out_in).size());
}

bool is_dealt(const GridPlace& place, const ParameterSpec& p) {
  return place.tables.of(p.name) == ReplicaCut::rows;
}

std::vector<Range> shard_at(const GridPlace& place, const ParameterSpec& p) {
  LACONIC_ASSERT(!is_dealt(place, p), "rows of " + p.name + " are dealt");
  Mesh mesh = place.plan.mesh;
  mesh.dp = place.tables.ranks;
  return shard_of(layout_at(place, p), mesh, place.coord, cut_sizes(p.sizes, p.parts, p.is_out_in));
}

std::vector<std::int64_t> sizes_at(const GridPlace& place, const ParameterSpec& p) {
  if (is_dealt(place, p))
    return {dealt_rows(p.sizes[0], place.tables.ranks, place.coord.dp), p.sizes[1]};
  return joined_sizes(sizes_of(shard_at(place, p)), p.parts, p.is_out_in);
}

std::vector<ShardRun> runs_at(const GridPlace& place, const ParameterSpec& p) {
  if (!is_dealt(place, p))
    return runs_of(shard_at(place, p), cut_sizes(p.sizes, p.parts, p.is_out_in));
  const std::int64_t rows = sizes_at(place, p)[0], width = p.sizes[1];
  std::vector<ShardRun> runs;
  for (std::int64_t r = 0; r < rows; ++r)
    runs.push_back({(r * place.tables.ranks + place.coord.dp) * width, r * width, width});
  return runs;
}

}  // namespace laconic
