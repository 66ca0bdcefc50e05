// schedule/fragment.hpp — parts of a model whose changes travel at different steps of a round
// (Streaming DiLoCo), as a pure function of block and step.
//
// A round has H steps, and every fragment leaves once in it: fragment p of P after the steps t with
// t = p H / P mod H, so that links carry something all the time and no step carries much. It comes
// `overlap` steps later. The first and the last block (embedding and head) are a fragment of their
// own, the last one; layers between them lie in fragments of `layers` each:
//
//   strided     0 1 2 0 1 2 0 1    every fragment has some of every depth
//   sequential  0 0 0 1 1 1 2 2
//
// With one fragment, which leaves at the end of a round and comes at once, it is DiLoCo.
#pragma once

#include <cstdint>
#include <string>

#include "laconic/base/named.hpp"
#include "laconic/base/problem.hpp"

namespace laconic {

enum class FragmentOrder : std::uint8_t { strided, sequential };
inline constexpr auto kFragmentOrderNames = std::to_array<Named<FragmentOrder>>(
    {{FragmentOrder::strided, "strided"}, {FragmentOrder::sequential, "sequential"}});

struct FragmentSpec {
  std::int64_t blocks = 0;  // of the model
  std::int64_t layers = 0;  // of a fragment; 0: one fragment has all blocks
  FragmentOrder order = FragmentOrder::strided;
  std::int64_t steps = 1;    // of a round
  std::int64_t overlap = 0;  // steps that changes travel beside
};

// Every reason why it cannot work, by name of the number.
Problems check(const FragmentSpec& spec);

// Requires, from here on: check() has nothing to say; steps are counted from 1, blocks and
// fragments from 0.
std::int64_t fragment_count(const FragmentSpec& spec);
std::int64_t fragment_of(const FragmentSpec& spec, std::int64_t block);
// What happens to a fragment after the update of a step: changes leave, or those that have left
// come.
bool leaves_after(const FragmentSpec& spec, std::int64_t fragment, std::int64_t step);
bool comes_after(const FragmentSpec& spec, std::int64_t fragment, std::int64_t step);

// A line for every fragment, and one for every step of the second round and of what it leaves under
// way, in which something leaves or comes.
std::string to_text(const FragmentSpec& spec);

}  // namespace laconic
