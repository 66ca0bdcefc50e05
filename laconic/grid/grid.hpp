// grid/grid.hpp — the collectives of one rank of a tensor grid, on tensors.
//
// Values come and go as they are: nothing here is differentiable (model/grid_ops.hpp is).
// A collective goes along axes of the grid, that is over the group of ranks that
// differ in these alone, in the order of layout/layout.hpp. Along axes whose sizes
// are all 1 it is the identity, and nothing is sent or counted.
//
// All ranks of a group make the same calls in the same order: never make one
// depend on data. Messages carry the number of the call, counted for each set of
// axes, so calls that are under way together do not meet.
//
// Sums of short floats are made in float32. In which order they add depends on sizes and codecs
// alone, so they have the same bits whoever asks.
//
// Small exchanges go straight from everybody to everybody, large ones round a ring
// (grid_algorithm()). A sum in the all-gather form (GridCodec::is_gathered) always goes straight,
// whole, and once.
//
// Not thread-safe: belongs to the computing thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "laconic/base/named_floats.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/collective/run.hpp"
#include "laconic/engine/progress_thread.hpp"
#include "laconic/grid/grid_mask.hpp"
#include "laconic/layout/grid_plan.hpp"
#include "laconic/link/codec_override.hpp"
#include "laconic/link/fidelity.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

// What a message is about: which decides its codec, and, for codecs that draw random numbers or
// remember, which of them.
struct GridSite {
  Traffic traffic = Traffic::tp_activation;
  std::int64_t block = 0;
  int place = 0;          // within the block, counted by whoever computes it
  bool is_small = false;  // statistics and vectors: never encoded
  int columns = 0;        // of the matrix that moves; 0: it is none
  int stands_for = 0;     // columns that those are a code of; 0: they are themselves
  // How soon somebody waits, 0 to 3, 0 being now: messages that wait for a link leave in this
  // order.
  std::uint8_t urgency = 0;
};

// Elements that this rank has received and calls, as the formulas of papers count them
// (an all-gather of z from each of g ranks is (g - 1) z, and so on).
struct GridCount {
  std::uint64_t calls = 0;
  std::uint64_t elements = 0;
  bool operator==(const GridCount&) const = default;
};
enum class GridCall : std::uint8_t { gather, scatter, sum };
using GridCounts = std::map<std::tuple<GridCall, Traffic, Axes>, GridCount>;

// Which codec messages of a site have, and whether a sum remembers what was lost; the same on all
// ranks.
struct GridCodec {
  CodecSpec codec = Raw{};
  bool has_feedback = false;
  bool is_masked = false;  // a sparse codec's gradient is its own, not straight through
  // Sums: what each rank brings is encoded once and goes to all, who add it; otherwise what was
  // added is encoded once more.
  bool is_gathered = false;
};
// How an exchange of so many bytes on the wire, over all members' chunks, goes. Where all send to
// all several meet at every receiver, and their connections share its link badly; round a ring
// nobody meets. But a ring has as many rounds as members. What is rounded at every hop cannot go
// round one.
Algorithm grid_algorithm(GridCall call, std::uint64_t bytes, int members, bool is_lossy);
using GridCodecs = std::function<GridCodec(const GridSite&, GridCall)>;

// One call as all ranks of its group make it: for whoever compares them.
struct GridCallMade {
  GridCall call = GridCall::gather;
  Traffic traffic = Traffic::tp_activation;
  Axes axes;
  std::vector<std::uint64_t> offsets;  // of the members' chunks, in elements; gathered: of one
  std::int64_t block = 0;              // and whether it is small: as its site says
  bool is_small = false;
  bool operator==(const GridCallMade&) const = default;
};

class GridOverlap;  // grid/overlap.hpp

class TensorGrid {
  // Collectives that were made, by what they are for; those that are not under way serve again.
  struct Row;
  struct Made;

 public:
  // Requires: the progress thread outlives it; a rank of the mesh; check(plan) is empty. `codecs`
  // may be empty: everything is raw.
  TensorGrid(ProgressThread& progress_thread, const GridPlan& plan, const Mesh& mesh, Rank rank,
             GridCodecs codecs = {}, std::uint64_t seed = 0);
  ~TensorGrid();
  TensorGrid(const TensorGrid&) = delete;
  TensorGrid& operator=(const TensorGrid&) = delete;

  const GridPlan& plan() const { return plan_; }
  const Coord& coord() const { return coord_; }
  int extent(const Axes& axes) const { return laconic::extent(mesh_, axes); }
  int index(const Axes& axes) const { return index_along(mesh_, coord_, axes); }

  // What stays the same when a microbatch is computed once more: codecs that draw random numbers
  // draw the same then.
  void begin(std::uint64_t step, std::uint64_t microbatch);
  // Whether messages are raw whatever their class says, and nothing is remembered: in
  // evaluations that are not encoded, and in steps that only compare.
  void set_exact(bool is_exact) { is_exact_ = is_exact; }
  // Whether activations travel as codes, where they have any.
  bool uses_codes() const { return !is_exact_ && !is_bypassed(Traffic::tp_activation); }
  // What sums have remembered since the last of these stays, or never was. Requires: nothing is
  // under way.
  void commit();
  void abandon();

  // What sums remember, by name; empty before there is any. load() is for the sums to come.
  NamedFloats save() const;
  void load(NamedFloats state);

  // From the next step on messages of a class that lose something go by this instead; the same on
  // all ranks. Requires, here and for measuring: no step is open.
  void override_codec(Traffic traffic, const CodecOverride& codec_override);
  // Whether to measure how much receivers get of what is sent from here on; true also forgets what
  // was measured before.
  void measure_fidelity(Traffic traffic, bool is_on);
  Fidelity fidelity(Traffic traffic) const;
  // Of learned codes whoever makes them tells.
  bool measures_codes() const {
    return is_measured_[static_cast<std::size_t>(Traffic::tp_activation)];
  }
  void add_fidelity(const at::Tensor& truth, const at::Tensor& decoded);
  // Is told, by name, of all rows of which codes are made, or would be where messages are raw.
  using CodeObserver = std::function<void(const std::string& name, const at::Tensor& rows)>;
  void observe_codes(CodeObserver observer) { code_observer_ = std::move(observer); }
  const CodeObserver& code_observer() const { return code_observer_; }

  // A collective that is under way. get() waits, once. Whoever gives it up (an exception on the
  // way) takes it from the progress thread, which would go on to use its memory.
  class Pending {
   public:
    Pending() = default;
    Pending(Pending&& other) noexcept { swap(other); }
    Pending& operator=(Pending&& other) noexcept {
      swap(other);
      return *this;
    }
    ~Pending();
    at::Tensor get();

   private:
    void swap(Pending& other) noexcept;

    friend class TensorGrid;
    TensorGrid* grid_ = nullptr;
    std::shared_ptr<Operation> operation_;
    Row* row_ = nullptr;
    std::function<at::Tensor()> finish_;
    std::shared_ptr<const GridCallMade> made_;  // where somebody observes waits
  };

  // All-gather along dim 0, of which member m brings rows[m]. `mask`, here and below: gets what the
  // codec did to this rank's tensor, where its gradient is asked for (GridCodec::is_masked).
  at::Tensor gather(const at::Tensor& mine, const std::vector<std::int64_t>& rows, const Axes& axes,
                    const GridSite& site, GridMask* mask = nullptr);
  Pending start_gather(const at::Tensor& mine, const std::vector<std::int64_t>& rows,
                       const Axes& axes, const GridSite& site);
  // Reduce-scatter along dim 0, of which member m gets rows[m].
  at::Tensor scatter_sum(const at::Tensor& all, const std::vector<std::int64_t>& rows,
                         const Axes& axes, const GridSite& site, GridMask* mask = nullptr);
  Pending start_scatter_sum(const at::Tensor& all, const std::vector<std::int64_t>& rows,
                            const Axes& axes, const GridSite& site);
  // All-reduce.
  at::Tensor sum(const at::Tensor& mine, const Axes& axes, const GridSite& site,
                 GridMask* mask = nullptr);
  Pending start_sum(const at::Tensor& mine, const Axes& axes, const GridSite& site);

  // What of the weights moves in the background.
  GridOverlap& overlap() { return *overlap_; }

  // Tells of every call, in the order in which they are made.
  void observe(std::function<void(const GridCallMade&)> observer) {
    observer_ = std::move(observer);
  }
  // Tells of every call whose result is there, when whoever made it has waited for it.
  void observe_waits(std::function<void(const GridCallMade&)> observer) {
    wait_observer_ = std::move(observer);
  }
  const GridCounts& counts() const { return counts_; }
  void clear_counts() { counts_.clear(); }

 private:
  struct Exchange;

  bool is_bypassed(Traffic traffic) const;
  GridCodec codec_of(const GridSite& site, GridCall call) const;
  void pay(const GridSite& site, GridCall call, at::Tensor& buffer);
  void gather_fidelity(Traffic traffic);

  // Not under way yet.
  Pending make_gather(const at::Tensor& mine, const std::vector<std::int64_t>& rows,
                      const Axes& axes, const GridSite& site, GridMask* mask);
  Pending make_scatter(const at::Tensor& all, const std::vector<std::int64_t>& rows,
                       const Axes& axes, const GridSite& site, GridMask* mask);
  static Pending at_once(const at::Tensor& x);  // nobody else has a part in it
  Pending make_sum(const at::Tensor& mine, const Axes& axes, const GridSite& site, GridMask* mask);
  Pending make(const Exchange& exchange);
  Pending in_background(Pending pending);
  std::uint64_t index_beside(const Exchange& exchange) const;
  double raw_per_byte_of(const Exchange& exchange) const;
  // One that serves this exchange, not under way.
  Row& row_for(const Exchange& exchange);
  std::vector<float> take_loaded(const std::string& name);
  // Who fills the exchange's mask, if it asks for one.
  PayloadObserver observer_of(const Exchange& exchange, const Row& row) const;
  void release(Row& row);
  void count(const Exchange& exchange);
  at::Tensor finished(Pending pending);

  ProgressThread& progress_thread_;
  const GridPlan plan_;
  const Mesh mesh_;
  const Rank rank_;
  const Coord coord_;
  const GridCodecs codecs_;
  const std::uint64_t seed_;
  std::uint64_t step_ = 0;
  std::uint64_t microbatch_ = 0;
  bool is_exact_ = false;
  std::map<std::uint32_t, std::uint64_t> numbers_;  // by unit: calls so far
  std::unique_ptr<Made> made_;
  NamedFloats loaded_;          // that no sum has asked for yet
  NamedFloats owed_;            // by sums that are bypassed now
  std::set<std::string> paid_;  // of these, in the step under way
  std::map<Traffic, CodecOverride> overrides_;
  std::array<bool, kTrafficClasses> is_measured_ = {};
  std::map<Traffic, Fidelity> measured_;
  CodeObserver code_observer_;
  GridCounts counts_;
  std::function<void(const GridCallMade&)> observer_, wait_observer_;
  std::unique_ptr<GridOverlap> overlap_;
};

// Equal rows for each of so many members.
std::vector<std::int64_t> equal_rows(std::int64_t each, int members);

}  // namespace laconic
