// schedule/when.hpp — which gradient messages of a pipeline are encoded.
#pragma once

#include <cstdint>

#include "laconic/base/named.hpp"

namespace laconic {

enum class When : std::uint8_t {
  always,
  epilogue,  // those that no activation travels against any more
  critical,  // those on the critical path, as estimate() sees it
  never,
};
inline constexpr auto kWhenNames = std::to_array<Named<When>>({{When::always, "always"},
                                                               {When::epilogue, "epilogue"},
                                                               {When::critical, "critical"},
                                                               {When::never, "never"}});

}  // namespace laconic
