// config/stage_choice.hpp — which pipeline ranks encode their gradients: `dp.gradient.stages`.
//
// Optimus-CC's selective stage compression. The first rank of a pipeline ends its
// backward pass last, so its sums are the ones that everybody waits for; a choice
// is therefore always "the first so many":
//
//   all    every one
//   3      the first three
//   0.75   three quarters of them, rounded up
//   auto   as many as are worth it, which somebody who knows the costs must say
//
// "1" is one rank and "1.0" all of them: a dot makes a fraction.
#pragma once

#include <cstdint>
#include <string_view>

#include "laconic/base/problem.hpp"

namespace laconic {

struct StageChoice {
  enum class Kind : std::uint8_t { all, first, fraction, automatic };
  Kind kind = Kind::all;
  int count = 0;        // first
  double fraction = 0;  // in [0, 1]
  bool operator==(const StageChoice&) const = default;
};

StageChoice parse_stage_choice(std::string_view text);  // throws ConfigError
// Whether somebody who knows the costs must choose. Throws ConfigError.
bool is_automatic(std::string_view text);

// Every reason why it cannot be a choice among `pp` ranks, the text's own faults included.
Problems check_stage_choice(std::string_view text, std::int64_t pp);

// How many of `pp` ranks encode; `automatic` is what `auto` comes to.
int encoded_ranks(const StageChoice& choice, int pp, int automatic);

}  // namespace laconic
