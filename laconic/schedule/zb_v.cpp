// zb_v(): two chunks for each rank, there and back in a V, with the backward in halves.
//
// Rank r of p holds stage r, chunk 0, and stage 2p-1-r, chunk 1. Let F, I and W of
// a chunk take 1 each (`t` below counts that). The lists are made in two steps.
//
// First the order of F and I, for each rank by itself. The first microbatch passes
// rank r at time r, comes back to it at 2p-1-r, turns round at the last stage,
// which is rank 0's, and its gradient is at rank r at 2p+r. Until it comes back
// rank r has time for 2p-1-2r forwards of chunk 0. Until its gradient is there it
// has time for r forwards of each chunk, in turns, and one more of chunk 1. That
// makes 2p activations, which is `room`, and no rank has been idle since it began.
// From here on memory is full: chunk 1 goes on alone, a forward and the I that has
// come (p - r times, so that all ranks have done p of chunk 1), and then all go
// round F I of chunk 0, F I of chunk 1. When there are no more forwards the I that
// are left come, chunk 0 first.
//
// Then W is added by running that order with a clock: whenever the next F or I is
// not ready, or F would be one activation too many, the rank does the oldest W
// that is due instead. So W costs time only where there is nothing else to do.
//
// Rank p-1 cannot begin before p-1 and has 6n to do, for n microbatches: no list
// ends before 6n + p - 1. From n = p on this one ends then; from n = 2p - 1 on no
// rank is idle between its first action and its last. With fewer than p it ends at
// the larger of 2n + 4p - 1 and 4n + 3p - 1. (Tests compare all this for every
// small shape.)
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <limits>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"
#include "laconic/schedule/schedule.hpp"

namespace laconic {

namespace {

// The order of F and I on a rank.
class VOrder {
 public:
  VOrder(const PipelineShape& shape, int rank)
      : stages_{rank, shape.stages - 1 - rank}, microbatches_(shape.microbatches) {
    const int p = shape.ranks;
    for (int i = 0; i < 2 * (p - rank) - 1; ++i) forward(0);
    for (int i = 0; i < rank; ++i) {
      forward(1);
      forward(0);
    }
    for (int i = 0; i < p - rank; ++i) {
      forward(1);
      input(1);
    }
    while (forwards_[0] < microbatches_ || forwards_[1] < microbatches_)
      for (const std::size_t chunk : {0, 1}) {
        forward(chunk);
        input(chunk);
      }
    while (inputs_[0] < microbatches_ || inputs_[1] < microbatches_) {
      input(0);
      input(1);
    }
  }

  std::vector<Action> list;

 private:
  void forward(std::size_t chunk) { add(Op::forward, chunk, forwards_[chunk]); }
  void input(std::size_t chunk) { add(Op::backward_input, chunk, inputs_[chunk]); }
  // With few microbatches there may be none left.
  void add(Op op, std::size_t chunk, int& done) {
    if (done < microbatches_) list.push_back({op, stages_[chunk], done++});
  }

  std::array<int, 2> stages_;
  int microbatches_;
  std::array<int, 2> forwards_ = {0, 0}, inputs_ = {0, 0};  // by chunk
};

constexpr int kNotEnded = std::numeric_limits<int>::max();

// Runs the orders of all ranks at once and adds W.
class VClock {
 public:
  explicit VClock(const PipelineShape& shape)
      : shape_(shape),
        room_(2 * shape.ranks),
        ranks_(index(shape.ranks)),
        forward_end_(index(shape.stages) * index(shape.microbatches), kNotEnded),
        input_end_(forward_end_) {
    for (int rank = 0; rank < shape.ranks; ++rank)
      ranks_[index(rank)].order = VOrder(shape, rank).list;
  }

  std::vector<std::vector<Action>> run() {
    const int latest = 6 * shape_.microbatches + 4 * shape_.ranks;
    for (int t = 0; !std::ranges::all_of(ranks_, is_done); ++t) {
      LACONIC_ASSERT(t < latest, fmt::format("{} ranks, {} microbatches: not done at {}",
                                             shape_.ranks, shape_.microbatches, t));
      for (Rank& rank : ranks_) act(rank, t);
    }
    std::vector<std::vector<Action>> lists;
    for (Rank& rank : ranks_) lists.push_back(std::move(rank.list));
    return lists;
  }

 private:
  struct Rank {
    std::vector<Action> order;  // F and I
    std::size_t at = 0;         // how many of them are done
    std::deque<Action> due;     // W whose I is done
    int held = 0;               // activations
    std::vector<Action> list;
  };

  static bool is_done(const Rank& rank) { return rank.at == rank.order.size() && rank.due.empty(); }

  std::size_t slot(int stage, int microbatch) const {
    return index(stage) * index(shape_.microbatches) + index(microbatch);
  }

  // What ends at t is there at t, and nothing that begins at t ends before t + 1: ranks may be
  // asked in any order.
  bool is_ready(const Rank& rank, int t) const {
    if (rank.at == rank.order.size()) return false;
    const auto [op, stage, k] = rank.order[rank.at];
    if (op == Op::forward)
      return rank.held < room_ && (stage == 0 || forward_end_[slot(stage - 1, k)] <= t);
    return stage + 1 == shape_.stages || input_end_[slot(stage + 1, k)] <= t;
  }

  void act(Rank& rank, int t) {
    if (is_ready(rank, t)) {
      const Action action = rank.order[rank.at++];
      const bool is_forward = action.op == Op::forward;
      (is_forward ? forward_end_ : input_end_)[slot(action.stage, action.microbatch)] = t + 1;
      if (is_forward) ++rank.held;
      if (!is_forward) rank.due.push_back({Op::backward_weight, action.stage, action.microbatch});
      rank.list.push_back(action);
    } else if (!rank.due.empty()) {
      rank.list.push_back(rank.due.front());
      rank.due.pop_front();
      --rank.held;
    }
  }

  PipelineShape shape_;
  int room_;
  std::vector<Rank> ranks_;
  std::vector<int> forward_end_, input_end_;  // by stage and microbatch
};

}  // namespace

Schedule zb_v(const PipelineShape& shape) {
  const Problems problems = check(ScheduleKind::zb_v, shape);
  LACONIC_ASSERT(problems.empty(), to_text(problems));
  return {shape, VClock(shape).run(), v_shape(shape.ranks)};
}

}  // namespace laconic
