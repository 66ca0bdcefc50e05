// grid/grid_rows.hpp — the collectives that a TensorGrid has made. For grid/*.cpp alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "laconic/grid/grid.hpp"

namespace laconic {

struct TensorGrid::Row {
  std::unique_ptr<Collective> collective;
  bool is_under_way = false;
  std::string memory = {};     // the name of what it remembers; empty: nothing
  bool has_open_step = false;  // of those that remember
  bool is_masked = false;
};

struct TensorGrid::Made {
  using Purpose = std::tuple<GridCall, std::uint32_t, Traffic, Dtype, std::string, std::uint64_t,
                             std::uint64_t, double, std::vector<std::uint64_t>>;
  std::multimap<Purpose, Row> rows;
};

// What sums of gradients at a place remember is called by it.
std::string memory_name(const GridSite& site);
// And where low_rank's next message begins.
std::string start_name(const std::string& memory);

}  // namespace laconic
