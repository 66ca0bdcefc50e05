// base/named.hpp — the names that the values of an enum have in texts: one table for each enum.
//
//   enum class DecayShape : std::uint8_t { linear, cosine };
//   inline constexpr auto kDecayShapeNames = std::to_array<Named<DecayShape>>(
//       {{DecayShape::linear, "linear"}, {DecayShape::cosine, "cosine"}});
//
// A table gives the order in which messages and help list the names. It may leave values out, which
// then cannot be written.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace laconic {

template <class E>
struct Named {
  E value;
  std::string_view name;
};

// The name of a value; empty when the table has none.
template <class E, std::size_t kSize>
constexpr std::string_view name_in(const std::array<Named<E>, kSize>& table, E value) {
  for (const Named<E>& row : table)
    if (row.value == value) return row.name;
  return {};
}

template <class E, std::size_t kSize>
constexpr std::optional<E> value_in(const std::array<Named<E>, kSize>& table,
                                    std::string_view name) {
  for (const Named<E>& row : table)
    if (row.name == name) return row.value;
  return std::nullopt;
}

template <class E, std::size_t kSize>
std::vector<std::string> names_in(const std::array<Named<E>, kSize>& table) {
  std::vector<std::string> names;
  for (const Named<E>& row : table) names.emplace_back(row.name);
  return names;
}

// The rows of some values, in this order. Requires: the table has them.
template <class E, std::size_t kSize, std::size_t kSome>
constexpr std::array<Named<E>, kSome> rows_of(const std::array<Named<E>, kSize>& table,
                                              const E (&values)[kSome]) {
  std::array<Named<E>, kSome> rows{};
  for (std::size_t i = 0; i < kSome; ++i) rows[i] = {values[i], name_in(table, values[i])};
  return rows;
}

}  // namespace laconic
