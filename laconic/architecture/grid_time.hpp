// architecture/grid_time.hpp — how long a microbatch takes on a tensor grid: a prediction.
//
// All ranks do the same at the same time, so one of them is followed, with two clocks: that of its
// processor and that of its link. A collective occupies the link for its bytes / rate, whenever
// nothing more urgent does; latency comes on top, once for a gather or a scatter, twice for an
// all-reduce, and for every message of a ring, and occupies nothing. A collective of g ranks is
// g - 1 messages to each, an all-reduce twice as many; in the all-gather form it is a gather.
// Handling occupies the processor, also for what moves in the background: for each collective and
// each message (waking, checking) when it begins, and for its bytes (packing, copying, adding)
// while they come. So a collective that is waited for takes as long as its link or its handling,
// whichever is slower, and what is computed meanwhile goes on with what handling leaves of the
// processor. A wait ends when the collective does: what of it was not handling is *exposed*, of
// whatever had the link meanwhile.
//
// What is in the background is what model/grid_products.cpp and grid/overlap.hpp have there, and
// must stay so:
//
//   forward    start the next map's W; input; wait for W; product; output
//   backward   start the next map's W; output's gradient; input again;
//              where weights move:  dW; start dW; wait W; dX; input's gradient; wait for the last
//                                   map's dW, and at the end of a block for its own
//              elsewhere:           dX; start the input's gradient; dW; wait for it
//
// Without prefetch W is started where the next map's is, and dW waited for at once.
// tests/equivalence/tensor_order_test.cpp compares both.
//
// All that a rank gets of a collective comes at once, but for rings. Where several ranks send more
// than the queue of a switch takes, packets are dropped, and TCP takes its time to notice: a loss
// for each such gather or scatter, two for an all-reduce, during which the link is idle.
//
// Vectors, norms, look-ups and losses are waited for. Left out: what codecs and operations other
// than products compute (`flops_per_second` is what a rank reaches with them), but for norms, which
// may have a rate of their own, since not every method cuts them; and what a link's first bytes
// cost.
//
// Pure and std only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "laconic/architecture/grid_cost.hpp"

namespace laconic {

// What a rank has to itself, while all others do the same. 0: takes no time.
struct GridMachine {
  double flops_per_second = 0;          // in products
  double elements_per_second = 0;       // of the stream in norms, and what goes with them
  double bytes_per_second = 0;          // of messages through its link, each way
  double latency = 0;                   // of a message, in seconds
  double handled_bytes_per_second = 0;  // of messages received: what the processor is busy with,
  double message_seconds = 0;           // and besides for each of them,
  double call_seconds = 0;              // and for each collective, an all-reduce being two
  double queue_bytes = 0;               // where more than that comes from several ranks at once,
  double loss_seconds = 0;              // packets are lost, and so is this time
  double updates_per_second = 0;        // parameters that the optimiser changes
};

// What stands for so many elements on the wire, in all calls.
struct GridWire {
  double bytes = 0;
  bool is_encoded = false;
  bool is_gathered = false;  // an all-reduce in the all-gather form: one round, g - 1 messages
};
using GridBytes = std::function<GridWire(const GridTraffic&)>;

// Seconds, but for the last three.
struct GridTime {
  double compute = 0;
  double handling = 0;
  std::array<double, 3> exposed = {};  // by axis, tp0 first, as carried() divides
  double hidden = 0;                   // on the link while the rank computed
  double bytes = 0;                    // that the rank receives, as it sends
  double calls = 0;
  double messages = 0;  // that the rank receives, as it sends

  double exposed_on_all() const { return exposed[0] + exposed[1] + exposed[2]; }
  double total() const { return compute + handling + exposed_on_all(); }
  GridTime& operator+=(const GridTime& more);
};

struct GridBlockTime {
  GridTime forward, backward;
};

struct GridPasses {
  bool recomputes = false;  // backward of each block but the last begins with its forward
  bool prefetches = true;   // tensor.prefetch
};

// By block.
std::vector<GridBlockTime> grid_times(const ModelSpec& spec, const GridPlan& plan,
                                      const GridLoad& load, const GridMachine& machine,
                                      const GridBytes& bytes, const GridPasses& passes);

// The same as what a rank does in which order: products of maps (not of attention), and
// collectives that start and that are waited for.
struct GridEvent {
  enum class Kind : std::uint8_t { start, wait, product, other };
  Kind kind = Kind::product;
  GridTraffic traffic = {};    // of what starts or is waited for
  double multiply_adds = 0;    // of a product, or of what else is computed
  double elements = 0;         // of the stream that norms take, forward and backward being one
  std::size_t collective = 0;  // of what starts or is waited for: its number, from 0
  int urgency = 0;             // of what starts: 0 is most urgent
};
std::vector<GridEvent> grid_events(const ModelSpec& spec, const GridPlan& plan,
                                   const GridLoad& load, const GridPasses& passes);

// The same by block, with what is computed besides products (`other`), of a rank that has the
// blocks from `first` on, before `end`: those of others have no events. What starts in one block
// may be waited for in another.
struct GridBlockEvents {
  std::vector<GridEvent> forward, backward;
};
std::vector<GridBlockEvents> grid_block_events(const ModelSpec& spec, const GridPlan& plan,
                                               const GridLoad& load, const GridPasses& passes,
                                               std::size_t first, std::size_t end);

// A step of so many microbatches, one after the other, and the update of a rank's parameters.
GridTime grid_step_time(const std::vector<GridBlockTime>& blocks, std::int64_t microbatches,
                        double parameters, const GridMachine& machine);

// What a TCP connection over Ethernet leaves of a link's rate when as much comes back: 1448 bytes
// of a packet's 1514, and half an acknowledgement of 66 bytes for each that came the other way.
inline constexpr double kTcpShare = 1448.0 / (1514 + 33);

}  // namespace laconic
