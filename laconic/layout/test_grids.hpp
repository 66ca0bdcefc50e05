// layout/test_grids.hpp — the grids that tests of tensor parallelism go through.
#pragma once

#include <array>

namespace laconic {

// Of the specification, section 8.5; of 3d.
inline constexpr std::array<std::array<int, 3>, 9> kSpecifiedGrids = {{{2, 2, 2},
                                                                       {1, 4, 1},
                                                                       {4, 1, 1},
                                                                       {1, 2, 2},
                                                                       {2, 4, 1},
                                                                       {1, 1, 4},
                                                                       {2, 1, 2},
                                                                       {1, 4, 2},
                                                                       {2, 2, 1}}};

}  // namespace laconic
