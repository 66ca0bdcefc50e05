// mesh/layout.hpp — which axes of the mesh cut a tensor, dim by dim.
//
// Axes that cut one dim come outermost first. A dim that no axis cuts is whole on
// every rank, and so is a tensor without any entry: replicated.
#pragma once

#include <vector>

#include "laconic/mesh/mesh.hpp"

namespace laconic {

struct Layout {
  std::vector<std::vector<Axis>> by_dim;
  bool operator==(const Layout&) const = default;
};

inline bool is_replicated(const Layout& layout) {
  for (const std::vector<Axis>& axes : layout.by_dim)
    if (!axes.empty()) return false;
  return true;
}

}  // namespace laconic
