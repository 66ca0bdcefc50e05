// layout/replica_cut.hpp — how the replicas of a model share an embedding table: a value.
//
// By columns every replica has some of every row, as evenly as can be. Dealt, replica m of N has
// rows m, m + N, m + 2 N and so on, whole: neighbours in a vocabulary are about as frequent as each
// other, so that all replicas are asked for about as much, which ranges of rows would not be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

namespace laconic {

enum class ReplicaCut : std::uint8_t { whole, columns, rows };

// Rows that are dealt to a member.
constexpr std::int64_t dealt_rows(std::int64_t rows, int members, int member) {
  return (rows - member + members - 1) / members;
}

// Tables whose rows travel (embedding.rows), by name, and how replicas share them; all others are
// whole on each.
struct ReplicaCuts {
  int ranks = 1;
  std::map<std::string, ReplicaCut> by_name = {};

  ReplicaCut of(const std::string& name) const {
    const auto found = by_name.find(name);
    return ranks == 1 || found == by_name.end() ? ReplicaCut::whole : found->second;
  }
  // Whether blocks look up rows that come from outside, and not the table. It lies in host memory,
  // also where blocks compute on a GPU.
  bool moves_rows(const std::string& name) const { return by_name.contains(name); }
  // Whether replicas hold different parts of any.
  bool is_any() const {
    return ranks > 1 && std::ranges::any_of(by_name, [](const auto& table) {
             return table.second != ReplicaCut::whole;
           });
  }
};

}  // namespace laconic
