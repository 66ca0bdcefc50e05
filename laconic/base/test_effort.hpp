// base/test_effort.hpp — for tests: how much of a large table of cases they run.
//
// Quick tests run a part of it that has every kind of case; the slow ones, by the same tests again
// with LACONIC_THOROUGH=1 (THOROUGH in cmake/laconic.cmake), all of it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace laconic {

inline bool is_thorough() {
  const char* set = std::getenv("LACONIC_THOROUGH");
  return set != nullptr && std::string_view(set) == "1";
}

// All of them, or of each `step` neighbours the one at `first`.
template <class T>
std::vector<T> some_of(const std::vector<T>& all, std::size_t step, std::size_t first = 0) {
  if (is_thorough()) return all;
  std::vector<T> some;
  for (std::size_t i = first; i < all.size(); i += step) some.push_back(all[i]);
  return some;
}

}  // namespace laconic
