// layout/layout.hpp — who holds which part of a tensor: a value, and pure functions on it.
//
// A layout says which axes of the mesh cut each dim of a tensor, outermost first. A
// dim that no axis cuts is whole on every rank, and so is a tensor without any
// entry: replicated.
//
// A dim of n elements that is cut in k parts is cut in blocks of ceil(n / k), the last
// of which may be shorter or empty. Which of them a rank has says its
// coordinates: with axes {j, i} it is number r_j * extent(i) + r_i, so that the
// blocks of all ranks of one r_j lie next to each other, in the order of r_i. To bring
// these together is an all-gather over i, and nothing has to be moved afterwards. What replicas
// (dp) cut between them is cut as evenly as can be instead.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "laconic/mesh/mesh.hpp"

namespace laconic {

using Axes = std::vector<Axis>;

struct Layout {
  std::vector<Axes> by_dim;
  bool operator==(const Layout&) const = default;
};

bool is_replicated(const Layout& layout);
// All axes that cut any dim.
Axes axes_of(const Layout& layout);

// Part of a dim: [begin, end).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// How many parts these axes make together, and which of them has the coordinates.
int extent(const Mesh& mesh, const Axes& axes);
int index_along(const Mesh& mesh, const Coord& coord, const Axes& axes);
// The ranks that differ from `rank` along these axes alone, in the order of index_along().
Group group_along(const Mesh& mesh, Rank rank, const Axes& axes);

// Part number `index` of `count`, of `size` elements.
Range block_of(std::int64_t size, int count, int index);
// Part number `index` of `count` samples of a batch: as even as can be, so that every rank has some
// if there are enough. Like blocks, parts of nested cuts lie within each other.
Range share_of(std::int64_t samples, int count, int index);

// What the rank at `coord` has of each dim. Requires: no more dims in the layout than sizes.
std::vector<Range> shard_of(const Layout& layout, const Mesh& mesh, const Coord& coord,
                            std::span<const std::int64_t> sizes);
std::vector<std::int64_t> sizes_of(const std::vector<Range>& shard);

// A shard as runs of elements that lie beside each other, both in the whole tensor and in the
// shard; ascending, as long as can be, none of them empty.
struct ShardRun {
  std::int64_t whole = 0;  // where it begins in the whole tensor
  std::int64_t shard = 0;  // and in the shard
  std::int64_t elements = 0;
  bool operator==(const ShardRun&) const = default;
};
std::vector<ShardRun> runs_of(const std::vector<Range>& shard, std::span<const std::int64_t> sizes);

// The ranks of the same stage that hold the same shard, replicas of data parallelism included, in
// rank order: gradients are summed over them.
Group replicas_of(const Layout& layout, const Mesh& mesh, Rank rank);
// Of those in its replica, whether the rank is the first, which speaks for it in norms and
// checkpoints.
bool speaks_for(const Layout& layout, const Mesh& mesh, const Coord& coord);

// Every dim that its axes do not divide, and axes that cut more than once. `name` is for messages.
Problems check(const Layout& layout, const Mesh& mesh, std::span<const std::int64_t> sizes,
               const std::string& name);

std::string to_text(const Axes& axes);      // "tp1 x tp0"; "-": none
std::string to_text(const Layout& layout);  // "[tp2 x tp0, tp1]"; "replicated"

}  // namespace laconic
