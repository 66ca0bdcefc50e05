#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "laconic/schedule/schedule.hpp"

namespace laconic {

namespace {

// By Op.
constexpr std::array<std::string_view, 10> kSigns = {"F",  "B",  "I",  "W", ">a",
                                                     "<a", ">g", "<g", "R", "P"};

bool has_microbatch(Op op) {
  return op != Op::reduce_gradients && op != Op::prefetch;
}

// Whether the text must say it. Not when each rank has one stage, and only that in its list.
bool names_stages(const Schedule& schedule) {
  if (chunks_of(schedule.shape) > 1) return true;
  for (std::size_t rank = 0; rank < schedule.by_rank.size(); ++rank)
    if (std::ranges::any_of(schedule.by_rank[rank], [&](const Action& action) {
          return action.stage != static_cast<int>(rank);
        }))
      return true;
  return false;
}

}  // namespace

std::string to_text(const Action& action, bool with_stage) {
  std::string text = with_stage ? std::to_string(action.stage) : "";
  text += kSigns.at(static_cast<std::size_t>(action.op));
  if (has_microbatch(action.op)) text += std::to_string(action.microbatch);
  return text;
}

std::string to_text(const Schedule& schedule) {
  const bool with_stage = names_stages(schedule);
  std::string text;
  for (std::size_t rank = 0; rank < schedule.by_rank.size(); ++rank) {
    text += fmt::format("rank {}: ", rank);
    for (const Action& action : schedule.by_rank[rank]) text += " " + to_text(action, with_stage);
    text += '\n';
  }
  return text;
}

}  // namespace laconic
