#include "laconic/schedule/lower.hpp"

#include <algorithm>

namespace laconic {

namespace {

using Actions = std::vector<Action>;

template <class Predicate>
bool has_any(const Schedule& schedule, const Predicate& is_one) {
  return std::ranges::any_of(
      schedule.by_rank, [&](const Actions& list) { return std::ranges::any_of(list, is_one); });
}

void add_with_messages(Actions& list, const Schedule& schedule, const Action& action) {
  const bool is_forward = action.op == Op::forward;
  const bool moves = is_forward || action.op == Op::backward || action.op == Op::backward_input;
  const int before = action.stage - 1, after = action.stage;  // edges
  const auto add = [&](Op op) { list.push_back({op, action.stage, action.microbatch}); };
  if (moves && crosses_ranks(schedule, is_forward ? before : after))
    add(is_forward ? Op::recv_activation : Op::recv_gradient);
  list.push_back(action);
  if (moves && crosses_ranks(schedule, is_forward ? after : before))
    add(is_forward ? Op::send_activation : Op::send_gradient);
}

}  // namespace

Schedule with_communication(Schedule schedule) {
  if (has_any(schedule, [](const Action& a) { return is_message(a.op); })) return schedule;
  for (Actions& list : schedule.by_rank) {
    Actions lowered;
    for (const Action& action : list) add_with_messages(lowered, schedule, action);
    list = std::move(lowered);
  }
  return schedule;
}

Schedule with_prefetch(Schedule schedule) {
  if (has_any(schedule, [](const Action& a) { return a.op == Op::prefetch; })) return schedule;
  for (std::size_t rank = 0; rank < schedule.by_rank.size(); ++rank) {
    Actions& list = schedule.by_rank[rank];
    std::size_t after = 0;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].op == Op::forward || (list[i].op == Op::send_activation && after == i))
        after = i + 1;
    const std::vector<int> stages = stages_of_rank(schedule, static_cast<int>(rank));
    if (after > 0 && !stages.empty())
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(after),
                  {Op::prefetch, stages.front(), 0});
  }
  return schedule;
}

Schedule lowered(Schedule schedule) {
  return with_prefetch(with_communication(std::move(schedule)));
}

Schedule compute_only(Schedule schedule) {
  for (Actions& list : schedule.by_rank)
    std::erase_if(list, [](const Action& action) { return !is_compute(action.op); });
  return schedule;
}

}  // namespace laconic
