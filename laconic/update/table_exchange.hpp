// update/table_exchange.hpp — one embedding table whose rows travel (EmbRace).
//
// The replicas share it: each holds some columns of all rows, or some rows, and their moments, and
// Weights::parameters has them as it has any other part of a tensor. Or it is whole everywhere, and
// gradients of rows go to everybody, who then all do the same. What a block computes with is a leaf
// of the rows that this rank reads in the step, whole and each once; its gradient is then the
// gradient of these rows, coalesced. Blocks that look up one table have a leaf each, on the same
// memory, as they have of other parameters (model/weights.hpp), and for the same reason.
//
// Rows travel in the type that blocks compute in, and gradients in the type that they add up in
// (model/precision.hpp). Leaves are of the latter, so that tokens and microbatches add up in it.
//
//   request(t) ─► rows ... backward ─► give(t) ─► wait ─► apply or drop ─► request(t + 1)
//
// The table, its moments, messages and sums are in host memory. Where blocks compute on a GPU they
// are *apart* from it: the step's rows go there in one copy, in the type of computing, when a block
// first looks some up, and their gradients come back in one. Nobody waits for the GPU in
// backward: give() asks for the copy, and send() lets it leave when it is here.
//
// Rows that the next step reads are applied with their step, the others, the delayed ones, before
// request(t + 2): nobody reads or changes them in between, and step and learning rate of their
// update are those of step t (rows/row_plan.hpp, update/row_update.hpp). So the order in which
// updates happen changes no bit. settle() ends the waiting, for whoever wants to see the whole
// table. Rows of the next step that this one does not change may leave before it ends
// (send_early()), for the same reason.
//
// One thread only; messages travel in the background, urgent as papers say: what the next
// forward waits for first. Forward is in table_lookup.cpp, backward in table_exchange.cpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "laconic/model/weights.hpp"
#include "laconic/rows/row_memory.hpp"
#include "laconic/rows/row_method.hpp"
#include "laconic/rows/row_plan.hpp"
#include "laconic/tensor/arrival.hpp"
#include "laconic/update/row_exchange.hpp"
#include "laconic/update/row_update.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

// The rows that every member reads in a step.
struct StepRows {
  std::vector<RowIds> by_member;
  RowIds all;  // of them all
};
StepRows step_rows(std::vector<RowIds> by_member);

struct TableOptions {
  ReplicaCut cut = ReplicaCut::columns;
  bool splits = false;  // rows that the next step does not read may come later
  SplitPrice price = {};
  bool decays = false;       // RowRule::weight_decay is not 0
  std::uint32_t number = 0;  // of the table, among those of the model: for tags
  CodecSpec rows = Raw{};    // in training; evaluations are exact
  CodecSpec gradient = Raw{};
  std::uint64_t seed = 0;
  bool is_apart = false;  // for tests: rows go to blocks on the CPU as to those on a GPU
};

class TableExchange {
 public:
  // Requires: everything outlives it; `parameter` is the number of a table that this rank holds
  // its share of.
  TableExchange(World& world, Weights& weights, std::size_t parameter, const TableOptions& options);

  std::size_t parameter() const { return parameter_; }
  ReplicaCut cut() const { return options_.cut; }

  // --- forward

  // Sends the rows that others read in a step, and asks for those that this rank reads.
  void request(std::int64_t step, std::shared_ptr<const StepRows> rows);
  // The step whose rows were asked for last.
  std::optional<std::int64_t> requested() const { return requested_; }
  // Sends those of the next step's rows that are final while this step is under way: this step does
  // not read them, and no update of them is put off. request() then sends the others.
  void send_early(const StepRows& next);
  // One row for each id, for a block: of the step's, waiting for them if they are not here yet, or
  // of those of peek(). An id that nobody has announced is padding, and has a row of zeros; there
  // may be one.
  at::Tensor look_up(std::int64_t block, const at::Tensor& ids);

  // Rows without a step, to be looked up until end_peek(): for evaluation. Changes nothing.
  // Requires: settle() was called since the last update.
  void peek(const StepRows& rows);
  // The same for a table that blocks multiply with: members that are readers look up all of it, one
  // tile after the other (RowLookup, model/model.hpp), and all others send them theirs meanwhile,
  // here.
  void peek_tiles(const std::vector<bool>& readers);
  void end_peek();

  // --- backward

  // The gradients of all leaves are complete, and leave; apart they are asked for, and leave with
  // send(). `next` are the rows of the next step.
  void give(const RowIds& next);
  bool is_given() const { return given_.has_value(); }  // and not sent
  // Whether send() would not have to wait for a GPU.
  bool can_send() const { return given_ && given_->gradient.is_here(); }
  void send();
  // Whether all of this rank's gradients are numbers. Requires: they have left.
  bool is_finite() const;
  // Whether wait() and then apply_delayed() would find everything here.
  bool has_arrived() const;
  // The sums that cannot be put off are here.
  void wait();
  // The square of the norm of the sums in what this rank holds. Requires: nothing is put off.
  double square() const;
  // Changes rows now, or remembers to. The moments stay what they are until settle().
  void apply(const RowRule& rule, const at::Tensor& moment1, const at::Tensor& moment2);
  // The step's gradients are not used.
  void drop();
  // Changes what was put off in steps before; before the next request().
  void apply_delayed();
  // Nothing is put off any more. With `writes_decay` rows that nobody has read have shrunk, too.
  void settle(bool writes_decay);

 private:
  // Rows as they are looked up; apart `values` are in host memory first, as they travel.
  struct Rows {
    RowIds ids;
    at::Tensor values;                          // [ids + 1, width]; the last row is padding's
    std::map<std::int64_t, at::Tensor> leaves;  // by block that looks up, on the same memory
    // Apart: ids where blocks are, and behind them one that is larger than all; and whether ids
    // were looked up that nobody has announced.
    at::Tensor sorted = {}, has_strays = {};
  };
  // Rows on their way here.
  struct Coming {
    RowIds ids;
    std::unique_ptr<RowExchange> exchange;
    std::vector<double> factors;  // of steps that have shrunk them since they left
  };
  struct Early {
    StepRows rows;
    Coming coming;
    std::int64_t steps = 0;  // that had shrunk them
  };
  // Of a table that is looked up whole.
  struct Tiles {
    std::vector<bool> readers;
    std::int64_t next = 0;  // the first row that was not sent yet
    Coming coming;
  };
  // Gradients of a step on their way to the host.
  struct Given {
    Arrival gradient, has_strays;
    RowIds next;
  };
  // A part of the gradients of a step, on their way to the owners of rows.
  struct Part {
    std::int64_t step = 0;
    std::vector<RowIds> by_member;
    std::unique_ptr<RowExchange> exchange;
  };
  // What becomes of a part at this owner, once its sum is known.
  struct Delayed {
    Part part;
    RowRule rule;
    std::int64_t number = 0;  // of the update, for the decay
    at::Tensor moment1, moment2;
  };
  // The sum of a part over all members.
  struct Sum {
    RowIds rows;        // where they lie here
    at::Tensor values;  // [rows, columns of this rank]
  };
  enum class Use : std::uint32_t { rows, prior, delayed, peek, early };

  int members() const { return shares_.members; }
  bool is_shared() const { return options_.cut != ReplicaCut::whole; }
  const at::Tensor& value() const { return weights_.parameters[place_].value; }
  at::ScalarType row_type() const { return weights_.precision.compute; }
  bool is_rounded() const { return row_type() != value().scalar_type(); }
  std::byte* memory() const { return static_cast<std::byte*>(value().data_ptr()); }
  RowStretch all_columns() const;
  std::int64_t vocabulary() const { return weights_.spec.parameters[parameter_].sizes[0]; }
  std::uint64_t block() const;
  RowExchangeSpec spec_for(Use use);
  RowIds held_here(const RowIds& rows) const;

  void catch_up(const RowIds& rows);
  Coming send_rows(const std::vector<RowIds>& by_member, Use use, std::int64_t step);
  void note_early_decay();
  StepRows clean_rows(const StepRows& next) const;
  at::TensorOptions host_options(at::ScalarType type) const;
  Rows empty_rows(const RowIds& ids) const;
  at::Tensor to_blocks(const at::Tensor& host) const;
  void bring(Rows& rows) const;
  void take_rows(Coming& coming, const Rows& into) const;
  Rows own_rows(const RowIds& ids, bool is_peek) const;
  void pack_rows(const RowIds& stored, bool is_peek, std::byte* to) const;
  at::Tensor leaf_of(Rows& rows, std::int64_t block) const;
  void take_step_rows();
  at::Tensor step_gradient();
  void shrink(const RowIds& stored, std::byte* packed) const;
  at::Tensor places_of(const at::Tensor& ids, Rows& rows) const;
  at::Tensor places_apart(const at::Tensor& ids, Rows& rows) const;
  void send_tile();
  Rows take_tile();

  Part send_part(const std::vector<RowIds>& by_member, std::span<const std::int64_t> places,
                 const at::Tensor& gradient, Use use, DeadlineKey key);
  bool pays_to_split(const std::vector<RowIds>& delayed) const;
  Sum sum_of(Part& part) const;
  void update(const Sum& sum, const RowRule& rule, std::int64_t number, const at::Tensor& moment1,
              const at::Tensor& moment2);

  World& world_;
  Weights& weights_;
  const std::size_t parameter_, place_;
  const TableOptions options_;
  const std::int64_t width_;
  const TableShares shares_;
  const std::size_t item_;  // bytes of an element, of values and gradients
  const bool is_apart_;     // blocks compute in other memory
  RowDecay decay_;
  std::vector<std::uint64_t> exchanges_;  // so far, by use: numbers of tags

  std::optional<std::int64_t> requested_;
  std::shared_ptr<const StepRows> step_rows_;
  std::vector<Coming> coming_;
  std::optional<Early> early_;
  std::optional<Rows> rows_, peeked_;
  std::optional<Tiles> tiles_;
  std::optional<Given> given_;
  std::optional<Part> prior_, delayed_;
  std::optional<Sum> sum_;
  bool is_finite_ = true;
  std::vector<Delayed> put_off_;
};

// body.operator()<T>() for the type of the numbers.
template <class Body>
void with_row_type(const at::Tensor& tensor, const Body& body) {
  if (tensor.scalar_type() == at::kDouble)
    body.template operator()<double>();
  else
    body.template operator()<float>();
}

}  // namespace laconic
