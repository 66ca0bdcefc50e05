// transport/clause.hpp — the grammar that networks are described in, for tests and laboratories.
//
//   text    = clause { ";" clause }
//   clause  = [ head ":" ] option { "," option }  |  head
//   option  = key "=" value
//
// "rate=1gbit; 0-3: rate=20mbit,latency=40ms" and "drop:to=2,at=17; kill:at=41" are of this kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"

namespace laconic {

struct Option {
  std::string key;
  std::string value;
};

struct Clause {
  std::string text;  // as it was written, for messages
  std::string head;  // empty when there is none
  std::vector<Option> options;
};

// Empty clauses are left out; what is not of this grammar is added to `problems`.
std::vector<Clause> parse_clauses(std::string_view text, Problems& problems);

std::optional<std::uint64_t> parse_whole(std::string_view text);
// A problem with the word that was probably meant.
Problem unknown_word(const Clause& clause, std::string_view word,
                     const std::vector<std::string>& known);

}  // namespace laconic
