#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"
#include "laconic/base/text.hpp"
#include "laconic/schedule/schedule.hpp"

namespace laconic {

namespace {

using Actions = std::vector<Action>;

constexpr std::array<std::string_view, kScheduleKinds.size()> kKinds = {
    "gpipe", "1f1b", "interleaved", "zero_bubble", "zb_v"};

void require(ScheduleKind kind, const PipelineShape& shape) {
  const Problems problems = check(kind, shape);
  LACONIC_ASSERT(problems.empty(), to_text(problems));
}

template <class ListOfRank>
Schedule for_each_rank(const PipelineShape& shape, const ListOfRank& list_of_rank) {
  Schedule schedule{shape, {}};
  for (int rank = 0; rank < shape.ranks; ++rank) schedule.by_rank.push_back(list_of_rank(rank));
  return schedule;
}

// Forwards before the first backward, beside the one that comes right before it: those that are
// under way through the later stages while the first microbatch turns round at the last.
int warm_up(const PipelineShape& shape, int rank) {
  return std::min(shape.ranks - 1 - rank, shape.microbatches);
}

Actions one_by_one(const PipelineShape& shape, int rank) {
  const int warm = warm_up(shape, rank), n = shape.microbatches;
  Actions list;
  for (int k = 0; k < warm; ++k) list.push_back({Op::forward, rank, k});
  for (int k = warm; k < n; ++k) {
    list.push_back({Op::forward, rank, k});
    list.push_back({Op::backward, rank, k - warm});
  }
  for (int k = n - warm; k < n; ++k) list.push_back({Op::backward, rank, k});
  return list;
}

// --- zero bubble. The order of F and I is that of F and B in 1F1B; since I is shorter than B, the
// gradient reaches the first stage sooner. A W stands where there would be no room for the next
// forward (`room` activations: on every rank as many as 1F1B needs on the first, so that late ranks
// can put W off until early ones are done), and between the last I's, where the rank would wait.

Actions with_halves(const PipelineShape& shape, int rank, int room) {
  Actions list;
  int forwards = 0, weights = 0;
  const auto add_weight = [&] { list.push_back({Op::backward_weight, rank, weights++}); };
  for (Action action : one_by_one(shape, rank)) {
    if (action.op == Op::forward) {
      if (forwards++ - weights == room) add_weight();
    } else {
      if (list.back().op == Op::backward_input) add_weight();
      action.op = Op::backward_input;
    }
    list.push_back(action);
  }
  while (weights < shape.microbatches) add_weight();
  return list;
}

// --- interleaved. Forwards of a rank go through its chunks in turns of `ranks` microbatches each:
// the k-th is microbatch k % ranks of its turn, and `ranks * chunks` of them make a round, after
// which come the next `ranks` microbatches. Backwards go the same way with the last chunk first.

struct ChunkAndMicrobatch {
  int chunk = 0;
  int microbatch = 0;
};

ChunkAndMicrobatch interleaved_forward(const PipelineShape& shape, int k) {
  const int turn = k / shape.ranks, chunks = chunks_of(shape);
  return {turn % chunks, turn / chunks * shape.ranks + k % shape.ranks};
}

ChunkAndMicrobatch interleaved_backward(const PipelineShape& shape, int k) {
  const auto [chunk, microbatch] = interleaved_forward(shape, k);
  return {chunks_of(shape) - 1 - chunk, microbatch};
}

// Rank 0 has all chunks but the last before it, each a turn of `ranks` forwards, and the last one's
// way there and back. With a single round there is nothing to alternate with.
int interleaved_warm_up(const PipelineShape& shape, int rank) {
  const int all = shape.microbatches * chunks_of(shape);
  if (shape.microbatches == shape.ranks) return all;
  return std::min(all, (shape.ranks - rank - 1) * 2 + (chunks_of(shape) - 1) * shape.ranks);
}

// `stages` are the rank's, in the order of its chunks.
Actions interleaved_list(const PipelineShape& shape, int rank, const std::vector<int>& stages) {
  const int all = shape.microbatches * chunks_of(shape), warm = interleaved_warm_up(shape, rank);
  Actions list;
  const auto add = [&](Op op, const ChunkAndMicrobatch& at) {
    list.push_back({op, stages[index(at.chunk)], at.microbatch});
  };
  for (int k = 0; k < all + warm; ++k) {
    if (k < all) add(Op::forward, interleaved_forward(shape, k));
    if (k >= warm) add(Op::backward, interleaved_backward(shape, k - warm));
  }
  return list;
}

// --- what each kind needs

Problems check_interleaved(const PipelineShape& shape) {
  Problems problems;
  if (shape.microbatches < shape.ranks)
    problems.push_back({"interleaved", fmt::format("{} microbatches are fewer than {} ranks",
                                                   shape.microbatches, shape.ranks)});
  else if (shape.microbatches % shape.ranks != 0)
    problems.push_back({"interleaved", fmt::format("{} microbatches are no multiple of {} ranks",
                                                   shape.microbatches, shape.ranks)});
  if (chunks_of(shape) < 2)
    problems.push_back(
        {"interleaved", fmt::format("{} stages on {} ranks are 1 chunk each, needs at least 2",
                                    shape.stages, shape.ranks)});
  return problems;
}

Problems check_shape(ScheduleKind kind, const PipelineShape& shape) {
  Problems problems;
  const std::string where(name_of(kind));
  if (shape.ranks < 1) problems.push_back({where, fmt::format("{} ranks", shape.ranks)});
  if (shape.microbatches < 1)
    problems.push_back({where, fmt::format("{} microbatches", shape.microbatches)});
  if (shape.stages < 1 || (shape.ranks >= 1 && shape.stages % shape.ranks != 0))
    problems.push_back(
        {where, fmt::format("{} stages are no multiple of {} ranks", shape.stages, shape.ranks)});
  return problems;
}

}  // namespace

std::string_view name_of(ScheduleKind kind) {
  return kKinds.at(static_cast<std::size_t>(kind));
}

ScheduleKind parse_schedule_kind(std::string_view name) {
  const auto at = std::ranges::find(kKinds, name);
  if (at != kKinds.end()) return static_cast<ScheduleKind>(at - kKinds.begin());
  const std::string near = nearest(name, {kKinds.begin(), kKinds.end()});
  throw ConfigError(fmt::format("there is no schedule '{}'; there are {}{}", printable(name),
                                fmt::join(kKinds, ", "),
                                near.empty() ? "" : fmt::format(" (did you mean {}?)", near)));
}

Problems check(ScheduleKind kind, const PipelineShape& shape) {
  Problems problems = check_shape(kind, shape);
  if (!problems.empty()) return problems;
  if (kind == ScheduleKind::interleaved) return check_interleaved(shape);
  const int needed = kind == ScheduleKind::zb_v ? 2 : 1;
  if (chunks_of(shape) != needed)
    problems.push_back(
        {std::string(name_of(kind)),
         fmt::format("{} stages on {} ranks are {} chunk{} each, needs {}", shape.stages,
                     shape.ranks, chunks_of(shape), chunks_of(shape) == 1 ? "" : "s", needed)});
  return problems;
}

Schedule build(ScheduleKind kind, const PipelineShape& shape) {
  switch (kind) {
    case ScheduleKind::gpipe: return all_forward_all_backward(shape);
    case ScheduleKind::one_f_one_b: return one_forward_one_backward(shape);
    case ScheduleKind::interleaved: return interleaved(shape);
    case ScheduleKind::zero_bubble: return zero_bubble(shape);
    case ScheduleKind::zb_v: return zb_v(shape);
  }
  LACONIC_ASSERT(false, fmt::format("kind {}", static_cast<int>(kind)));
}

Schedule all_forward_all_backward(const PipelineShape& shape) {
  require(ScheduleKind::gpipe, shape);
  return for_each_rank(shape, [&](int rank) {
    Actions list;
    for (int k = 0; k < shape.microbatches; ++k) list.push_back({Op::forward, rank, k});
    for (int k = 0; k < shape.microbatches; ++k) list.push_back({Op::backward, rank, k});
    return list;
  });
}

Schedule one_forward_one_backward(const PipelineShape& shape) {
  require(ScheduleKind::one_f_one_b, shape);
  return for_each_rank(shape, [&](int rank) { return one_by_one(shape, rank); });
}

Schedule interleaved(const PipelineShape& shape) {
  require(ScheduleKind::interleaved, shape);
  const Schedule empty{shape, {}};
  return for_each_rank(
      shape, [&](int rank) { return interleaved_list(shape, rank, stages_of_rank(empty, rank)); });
}

Schedule zero_bubble(const PipelineShape& shape) {
  require(ScheduleKind::zero_bubble, shape);
  return for_each_rank(shape, [&](int rank) {
    return with_halves(shape, rank, std::min(shape.ranks, shape.microbatches));
  });
}

}  // namespace laconic
