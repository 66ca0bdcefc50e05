// base/problem.hpp — everything that is wrong with what the user asked, at once.
//
// A check is a pure function that returns Problems and never stops at the
// first; the command line prints them all and exits 2 before any work starts.
#pragma once

#include <string>
#include <vector>

namespace laconic {

struct Problem {
  std::string where;  // "run.toml:12:3", "model.heads", or empty
  std::string what;   // holds the numbers: "heads = 5 does not divide width = 384"
  bool operator==(const Problem&) const = default;
};

using Problems = std::vector<Problem>;

// One line per problem, "where: what".
std::string to_text(const Problems& problems);

void append(Problems& all, Problems more);
// The same problems, each under a section: "codec" becomes "dp.gradient.codec", and what was
// nowhere is at the section itself.
Problems under(const std::string& section, Problems problems);
// The same problems, all at one place.
Problems all_at(const std::string& where, Problems problems);

}  // namespace laconic
