// grid/overlap.hpp — weights that move while something else is computed.
//
//   gather    the weights of a map come while the map before it is computed, in forward, backward
//             and recomputation (grid/gather_order.hpp says which): one map ahead at most, and
//             the vectors before it
//   leave     the gradient of a map's weights goes to where they lie while backward goes on: one
//             map behind at most
//
// Values, counts and the numbers of calls are as without it, and all ranks make the same calls in
// the same order. Only a pass that takes another way than the last of its kind did has brought for
// nothing what was expected.
//
// Belongs to the thread that its TensorGrid belongs to.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "laconic/grid/gather_order.hpp"
#include "laconic/grid/grid.hpp"

namespace laconic {

class GridOverlap {
 public:
  // Weights that may be gathered at any time within a pass.
  struct Source {
    GatherPlace place;
    bool is_small = false;         // vectors: a few of them may be ahead besides
    std::vector<at::Tensor> from;  // what start() reads
    std::function<TensorGrid::Pending(std::uint8_t urgency)> start;
  };

  // Without it everything begins when it is asked for, and is waited for where it was before.
  void enable(bool is_on) { is_on_ = is_on; }

  // Under way already, if it was expected; what is expected next begins.
  TensorGrid::Pending gather(const Source& source);
  // `done` gets the result when the next one leaves, or in settle().
  void leave(TensorGrid::Pending sum, std::function<void(const at::Tensor&)> done);
  void settle();

 private:
  friend class GridPass;
  struct Ahead {
    Source source;
    TensorGrid::Pending pending;
  };
  void begin(const PassName& pass);
  void end();
  void give_up();  // after an exception
  void start_expected();
  void discard();

  bool is_on_ = true;
  bool is_in_pass_ = false;
  GatherOrder order_;
  std::map<GatherPlace, Source> sources_;  // as they were last asked for
  std::deque<Ahead> ahead_;                // what order_ expects first
  TensorGrid::Pending leaving_;
  std::function<void(const at::Tensor&)> done_;  // with it; empty: nothing leaves
};

// While it lives, one pass through the blocks of a stage is under way; `grid` may be null. Weights
// must not change meanwhile.
class GridPass {
 public:
  GridPass(TensorGrid* grid, const PassName& pass);
  ~GridPass();
  GridPass(const GridPass&) = delete;
  GridPass& operator=(const GridPass&) = delete;
  // Its end, unless an exception is. Throws as Pending::get() does.
  void end();

 private:
  TensorGrid* grid_;
};

}  // namespace laconic
