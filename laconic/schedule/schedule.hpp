// schedule/schedule.hpp — a pipeline schedule as plain data.
//
// A schedule is a list of actions for each pipeline rank, in the order in which
// that rank performs them. Pure functions build it, lower it (lower.hpp), check
// it (check.hpp), time it (estimate.hpp), draw it (gantt.hpp) and print it; the
// runtime only walks it. The text form is the contract:
//
//     rank 0:  F0 F1 B0 F2 B1 B2         after one_forward_one_backward()
//     rank 0:  F0 >a0 F1 >a1 <g0 B0 ..   after with_communication()
//
// A stage is a range of the model's blocks. With more stages than ranks each rank
// has several, its chunks, and the text says which: "2F0" is the forward of
// microbatch 0 on stage 2. Which rank holds a stage is the schedule's placement
// (placement.hpp); where nothing else is said, stages go round the ranks.
//
// Time is not here: a schedule says what comes after what. Nor are sums over
// replicas, which begin by themselves, block by block, in a stage's last B or W:
// there is nothing to decide about them. Gradients add up over microbatches in the order of the
// list, and every builder takes microbatches of a stage in ascending order, so that the sum has the
// bits of one process.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/schedule/placement.hpp"

namespace laconic {

enum class Op : std::uint8_t {
  forward,          // F   needs the activation of the stage before
  backward,         // B   needs the gradient of the stage after; both halves at once
  backward_input,   // I   the half that the stage before waits for
  backward_weight,  // W   the half that only this stage's parameters wait for
  send_activation,  // >a  of this stage's output
  recv_activation,  // <a  of this stage's input
  send_gradient,    // >g  of this stage's input
  recv_gradient,    // <g  of this stage's output
  prefetch,         // P   what links will remember of the next step's samples may be read
};

constexpr bool is_compute(Op op) {
  return op <= Op::backward_weight;
}
constexpr bool is_message(Op op) {
  return op >= Op::send_activation && op <= Op::recv_gradient;
}
constexpr bool has_microbatch(Op op) {
  return op != Op::prefetch;
}

struct Action {
  Op op = Op::forward;
  int stage = 0;
  int microbatch = 0;  // 0 where there is none (P)
  auto operator<=>(const Action&) const = default;
};

struct PipelineShape {
  int ranks = 1;
  int stages = 1;  // a multiple of `ranks`
  int microbatches = 1;
  bool operator==(const PipelineShape&) const = default;
};
// Stages of a rank, where all ranks have as many.
constexpr int chunks_of(const PipelineShape& shape) {
  return shape.stages / shape.ranks;
}
// Edge e lies between stage e and the next.
constexpr int edge_count(const PipelineShape& shape) {
  return shape.stages - 1;
}

struct Schedule {
  PipelineShape shape;
  std::vector<std::vector<Action>> by_rank;
  Placement placement = round_robin(shape.ranks, shape.stages);
  bool operator==(const Schedule&) const = default;
};

// Requires: 0 <= stage < schedule.placement.size().
inline int rank_of_stage(const Schedule& schedule, int stage) {
  return schedule.placement.at(static_cast<std::size_t>(stage));
}
std::vector<int> stages_of_rank(const Schedule& schedule, int rank);  // ascending
// Whether `edge` is one, and lies between two ranks. The others need no message.
bool crosses_ranks(const Schedule& schedule, int edge);

enum class ScheduleKind : std::uint8_t { gpipe, one_f_one_b, interleaved, zero_bubble, zb_v };
inline constexpr std::array<ScheduleKind, 5> kScheduleKinds = {
    ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
    ScheduleKind::zero_bubble, ScheduleKind::zb_v};
std::string_view name_of(ScheduleKind kind);  // "gpipe" "1f1b" "interleaved" "zero_bubble" "zb_v"
// Throws ConfigError with the names there are.
ScheduleKind parse_schedule_kind(std::string_view name);

// Every reason why there is no such schedule (interleaved needs a number of microbatches that
// `ranks` divides, and more than one chunk; zb_v exactly two; the others exactly one).
Problems check(ScheduleKind kind, const PipelineShape& shape);

// Compute actions only. Requires: check(kind, shape) is empty.
Schedule build(ScheduleKind kind, const PipelineShape& shape);
Schedule all_forward_all_backward(const PipelineShape& shape);  // GPipe
Schedule one_forward_one_backward(const PipelineShape& shape);  // 1F1B
Schedule interleaved(const PipelineShape& shape);               // 1F1B over chunks
// 1F1B with W where ranks would be idle (ZB-H1). An activation is held until its W is done, and no
// rank holds more of them than 1F1B does on the first: min(ranks, microbatches).
Schedule zero_bubble(const PipelineShape& shape);
// Two chunks in a V (ZB-V): rank r has stages r and 2 ranks - 1 - r, so that rank 0 has the first
// and the last. No rank holds more activations than 1F1B does on the first: min(ranks,
// microbatches) of each chunk. If F, I and W take equally long, messages no time, and there are at
// least 2 ranks - 1 microbatches, no rank is idle between its first action and its last: zb_v.cpp
// tells why.
Schedule zb_v(const PipelineShape& shape);

// One line per rank; an action names its stage when some rank has several. P has no microbatch:
// "P", "2P". Before the ranks comes "placement:  0 1 1 0", the rank of each stage, if
// stages do not go round the ranks, or if no action names the last of them. parse(to_text(s)) == s,
// if check(s.placement, ...) is empty, no number is negative, and stages are a multiple of ranks.
//
// In what is parsed, lines that are empty or begin with # are passed over; lines of ranks may come
// in any order; messages and P may all be there or be left to lower.hpp. "R" and "2R" are passed
// over: they once said where a stage's sums over replicas begin, which now follows. Ranks, stages
// and microbatches follow from what the lines hold: as many stages as the placement has ranks, or
// else as ranks, unless actions name theirs, which all of them do or none. Whether it can be run is
// check.hpp's question.
std::string to_text(const Schedule& schedule);
bool names_stages(const Schedule& schedule);                         // whether its text does
std::string to_text(const Action& action, bool with_stage = false);  // ">a3", "2F0"
// Throws ConfigError with every reason: the line, the word and what is wrong with it.
Schedule parse_schedule(std::string_view text);

}  // namespace laconic
