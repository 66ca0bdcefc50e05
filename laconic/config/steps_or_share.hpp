// config/steps_or_share.hpp — a number of steps, or a share of them: 100, or 0.1 for a tenth.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>

namespace laconic {

struct StepsOrShare {
  std::int64_t steps = 0;
  double share = 0;  // where it is not 0, it counts instead

  constexpr StepsOrShare() = default;
  template <std::integral Number>
  constexpr StepsOrShare(Number number) : steps(number) {}  // NOLINT(google-explicit-constructor)
  template <std::floating_point Number>
  constexpr StepsOrShare(Number number) : share(number) {}  // NOLINT(google-explicit-constructor)

  // How many steps of `all` it means; may be more than there are.
  std::int64_t of(std::int64_t all) const {
    return share == 0 ? steps : std::llround(share * static_cast<double>(all));
  }
  bool operator==(const StepsOrShare&) const = default;
};

}  // namespace laconic
