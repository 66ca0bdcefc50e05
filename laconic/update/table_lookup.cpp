// Forward of a table whose rows travel: what update/table_exchange.hpp says of rows.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/searchsorted.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"
#include "laconic/model/model.hpp"
#include "laconic/model/ops.hpp"
#include "laconic/tensor/host.hpp"
#include "laconic/update/table_exchange.hpp"

namespace laconic {

namespace {

std::byte* first_byte(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

template <class T>
RowColumns<T> values_alone(const at::Tensor& value) {
  return {.value = value.data_ptr<T>(), .width = value.size(1)};
}

// So many rows that lie one behind the other.
at::Tensor rows_from(const std::byte* first, Dtype dtype, std::size_t rows, const Range& columns) {
  const std::int64_t count = static_cast<std::int64_t>(rows), width = columns.size();
  const auto bytes = static_cast<std::size_t>(count * width) * bytes_of(dtype);
  return tensor_from_bytes({first, bytes}, dtype, {count, width});
}

// Those of the rows that are not among the others.
RowIds without(const RowIds& rows, const RowIds& others) {
  return rows_at(rows, split_rows(rows, others).delayed);
}

// Rows [first, first + count).
RowIds range_of_rows(std::int64_t first, std::int64_t count) {
  RowIds rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

}  // namespace

// `stored` is where they lie here. Not for rows whose update is put off.
void TableExchange::catch_up(const RowIds& stored) {
  with_row_type(value(), [&]<class T>() { decay_.catch_up<T>(stored, values_alone<T>(value())); });
}

// What rows that are only looked at would be, had somebody read them.
void TableExchange::shrink(const RowIds& stored, std::byte* packed) const {
  if (!decay_.is_used()) return;
  const std::int64_t held = value().size(1);
  with_row_type(value(), [&]<class T>() {
    T* row = reinterpret_cast<T*>(packed);
    for (const std::int64_t at : stored) {
      decay_.shrink(at, row, held);
      row += held;
    }
  });
}

// Rows as they travel: rounded to the type that blocks compute in, where that is another.
void TableExchange::pack_rows(const RowIds& stored, bool is_peek, std::byte* to) const {
  at::Tensor wide;
  if (is_rounded())
    wide = at::empty({static_cast<std::int64_t>(stored.size()), value().size(1)},
                     value().options().requires_grad(false));
  std::byte* const packed = is_rounded() ? first_byte(wide) : to;
  gather_rows(all_columns(), stored, packed);
  if (is_peek) shrink(stored, packed);
  if (is_rounded()) std::ranges::copy(bytes_of_tensor(wide.to(row_type())), to);
}

TableExchange::Coming TableExchange::send_rows(const std::vector<RowIds>& by_member, Use use,
                                               std::int64_t step) {
  const int self = world_.dp_member();
  const RowIds& mine = by_member[index(self)];
  RowExchangeSpec spec = spec_for(use);
  for (int i = 0; i < members(); ++i) {
    spec.sent.push_back(shares_.held_elements(by_member[index(i)], self));
    spec.received.push_back(shares_.held_elements(mine, i));
  }
  Coming coming{.ids = mine,
                .exchange = std::make_unique<RowExchange>(world_, std::move(spec)),
                .factors = {}};
  for (int i = 0; i < members(); ++i)
    pack_rows(held_here(by_member[index(i)]), use == Use::peek, coming.exchange->to(i));
  const auto when = static_cast<std::uint64_t>(step);
  coming.exchange->post(when, deadline_key(when, block(), 1));
  return coming;
}

// Rows that nobody changes before the next step reads them.
StepRows TableExchange::clean_rows(const StepRows& next) const {
  std::vector<RowIds> changing = {step_rows_->all};
  for (const Delayed& one : put_off_)
    changing.insert(changing.end(), one.part.by_member.begin(), one.part.by_member.end());
  const RowIds changed = union_of(changing);
  std::vector<RowIds> clean;
  for (const RowIds& rows : next.by_member) clean.push_back(without(rows, changed));
  return step_rows(std::move(clean));
}

void TableExchange::send_early(const StepRows& next) {
  if (!is_shared() || early_) return;
  LACONIC_ASSERT(step_rows_ != nullptr, "no step is under way");
  StepRows clean = clean_rows(next);
  catch_up(held_here(clean.all));
  Coming coming = send_rows(clean.by_member, Use::early, *requested_ + 1);
  early_ = Early{std::move(clean), std::move(coming), decay_.steps()};
}

// What has shrunk since they left shrinks where they arrive.
void TableExchange::note_early_decay() {
  if (!early_) return;
  for (const double factor : decay_.factors_since(early_->steps))
    early_->coming.factors.push_back(factor);
  early_->steps = decay_.steps();
}

void TableExchange::request(std::int64_t step, std::shared_ptr<const StepRows> rows) {
  LACONIC_ASSERT(put_off_.empty() || put_off_.front().part.step >= step - 1,
                 fmt::format("rows of step {} are put off beyond their deadline at step {}",
                             put_off_.front().part.step, step));
  catch_up(held_here(rows->all));
  coming_.clear();
  if (early_) {
    std::vector<RowIds> others;
    for (std::size_t i = 0; i < rows->by_member.size(); ++i)
      others.push_back(without(rows->by_member[i], early_->rows.by_member[i]));
    note_early_decay();
    coming_.push_back(std::move(early_->coming));
    coming_.push_back(send_rows(others, Use::rows, step));
    early_.reset();
  } else if (is_shared()) {
    coming_.push_back(send_rows(rows->by_member, Use::rows, step));
  }
  rows_.reset();
  step_rows_ = std::move(rows);
  requested_ = step;
}

// A GPU copies from pinned memory by itself, while this thread goes on.
at::TensorOptions TableExchange::host_options(at::ScalarType type) const {
  return at::TensorOptions().dtype(type).pinned_memory(weights_.device().is_cuda());
}

TableExchange::Rows TableExchange::empty_rows(const RowIds& ids) const {
  const auto rows = static_cast<std::int64_t>(ids.size());
  const at::ScalarType type = is_apart_ ? row_type() : value().scalar_type();
  Rows made{.ids = ids, .values = at::empty({rows + 1, width_}, host_options(type)), .leaves = {}};
  made.values.narrow(0, rows, 1).zero_();
  return made;
}

// The memory may go at once: libtorch keeps what is pinned until the copy is done.
at::Tensor TableExchange::to_blocks(const at::Tensor& host) const {
  return host.to(weights_.device(), host.scalar_type(), /*non_blocking=*/true);
}

// Brings rows that are complete to where blocks compute. Leaves are of the type of sums.
void TableExchange::bring(Rows& rows) const {
  if (!is_apart_) return;
  rows.values = to_blocks(rows.values).to(value().scalar_type());
  const auto count = static_cast<std::int64_t>(rows.ids.size());
  const at::Tensor sorted = at::empty({count + 1}, host_options(at::kLong));
  auto* id = sorted.data_ptr<std::int64_t>();
  std::ranges::copy(rows.ids, id);
  id[count] = std::numeric_limits<std::int64_t>::max();
  rows.sorted = to_blocks(sorted);
}

// Of a table that is whole here. Whoever looks them up has them rounded.
TableExchange::Rows TableExchange::own_rows(const RowIds& ids, bool is_peek) const {
  Rows own = empty_rows(ids);
  if (is_apart_) {
    pack_rows(ids, is_peek, first_byte(own.values));
    return own;
  }
  gather_rows(all_columns(), ids, first_byte(own.values));
  if (is_peek) shrink(ids, first_byte(own.values));
  return own;
}

void TableExchange::take_rows(Coming& coming, const Rows& into) const {
  coming.exchange->wait();
  const std::vector<std::int64_t> places = places_in(into.ids, coming.ids);
  const bool widens = into.values.scalar_type() != row_type();
  for (int i = 0; i < members(); ++i) {
    const std::vector<std::int64_t> held = rows_at(places, shares_.held_places(coming.ids, i));
    const Range columns = shares_.columns(i);
    at::Tensor wide;
    if (widens)
      wide = rows_from(coming.exchange->from(i), dtype_of(row_type()), held.size(), columns)
                 .to(into.values.scalar_type());
    put_rows(widens ? first_byte(wide) : coming.exchange->from(i), held,
             stretch_of(first_byte(into.values), width_, into.values.element_size(), columns));
  }
  if (coming.factors.empty()) return;
  with_row_type(into.values, [&]<class T>() {
    for (const double factor : coming.factors)
      for (const std::int64_t place : places) {
        T* row = into.values.template data_ptr<T>() + place * width_;
        for (std::int64_t c = 0; c < width_; ++c) row[c] *= static_cast<T>(factor);
      }
  });
}

// The same where only a GPU knows the ids, which nobody waits for: those that are not there must
// all be padding, and so one, which is looked at with the gradients.
at::Tensor TableExchange::places_apart(const at::Tensor& ids, Rows& rows) const {
  using Limits = std::numeric_limits<std::int64_t>;
  const at::Tensor wanted = ids.flatten();
  if (wanted.numel() == 0) return wanted;  // which has no least
  const at::Tensor places = at::searchsorted(rows.sorted, wanted);
  const at::Tensor is_found = rows.sorted.index_select(0, places).eq(wanted);
  const at::Tensor is_stray = wanted.masked_fill(is_found, Limits::max())
                                  .min()
                                  .lt(wanted.masked_fill(is_found, Limits::min()).max());
  rows.has_strays = rows.has_strays.defined() ? rows.has_strays.logical_or(is_stray) : is_stray;
  return places.masked_fill(is_found.logical_not(), static_cast<std::int64_t>(rows.ids.size()));
}

// The place of each id among rows; behind them for padding.
at::Tensor TableExchange::places_of(const at::Tensor& ids, Rows& in) const {
  if (is_apart_) return places_apart(ids, in);
  const RowIds& rows = in.ids;
  const at::Tensor wanted = ids.flatten().contiguous();
  const at::Tensor places = at::empty_like(wanted);
  const auto* id = wanted.data_ptr<std::int64_t>();
  auto* place = places.data_ptr<std::int64_t>();
  std::int64_t padding = -1;
  for (std::int64_t i = 0; i < wanted.numel(); ++i) {
    const auto found = std::ranges::lower_bound(rows, id[i]);
    if (found != rows.end() && *found == id[i]) {
      place[i] = found - rows.begin();
      continue;
    }
    LACONIC_ASSERT(padding == -1 || padding == id[i],
                   fmt::format("nobody has announced the ids {} and {}", padding, id[i]));
    padding = id[i];
    place[i] = static_cast<std::int64_t>(rows.size());
  }
  return places;
}

// What several blocks add stays apart until all of them are done.
at::Tensor TableExchange::leaf_of(Rows& rows, std::int64_t block) const {
  at::Tensor& leaf = rows.leaves[block];
  if (!leaf.defined()) leaf = rows.values.detach().requires_grad_(true);
  return leaf;
}

// Those of the step, which may be on their way.
void TableExchange::take_step_rows() {
  LACONIC_ASSERT(step_rows_ != nullptr, "nobody has asked for rows");
  const at::NoGradGuard no_grad;
  const RowIds& mine = step_rows_->by_member[index(world_.dp_member())];
  rows_ = is_shared() ? empty_rows(mine) : own_rows(mine, false);
  for (Coming& coming : coming_) take_rows(coming, *rows_);
  coming_.clear();
  bring(*rows_);
}

at::Tensor TableExchange::look_up(std::int64_t block, const at::Tensor& ids) {
  if (tiles_) {
    const Rows tile = take_tile();
    const auto count = static_cast<std::int64_t>(tile.ids.size());
    const at::Tensor wanted = ids.flatten().contiguous();
    const bool is_next =  // as far as is known here
        wanted.numel() == count &&
        (!wanted.is_cpu() || *wanted.data_ptr<std::int64_t>() == tile.ids[0]);
    LACONIC_ASSERT(is_next, fmt::format("{} ids, where {} rows from {} on come next",
                                        wanted.numel(), count, tile.ids[0]));
    return to_blocks(tile.values).narrow(0, 0, count).to(row_type());
  }
  if (!peeked_ && !rows_) take_step_rows();
  Rows& found = peeked_ ? *peeked_ : *rows_;
  const at::Tensor rows = peeked_ ? found.values : leaf_of(found, block);
  return table_rows(rows, places_of(ids, found)).to(row_type());
}

void TableExchange::peek(const StepRows& rows) {
  LACONIC_ASSERT(put_off_.empty(), "some rows are not what they should be yet");
  const RowIds& mine = rows.by_member[index(world_.dp_member())];
  if (is_shared()) {
    Coming coming = send_rows(rows.by_member, Use::peek, requested_.value_or(0));
    peeked_ = empty_rows(mine);
    take_rows(coming, *peeked_);
  } else {
    peeked_ = own_rows(mine, true);
  }
  bring(*peeked_);
}

// --- tiles

// Who reads nothing takes some rows all the same, of every owner one: it must not run ahead of
// those who read, whose inboxes would then hold the table.
void TableExchange::send_tile() {
  const std::int64_t count = std::min(tile_rows(width_), vocabulary() - tiles_->next);
  const RowIds rows = range_of_rows(tiles_->next, count);
  const RowIds few = range_of_rows(tiles_->next, std::min<std::int64_t>(count, members()));
  tiles_->next += count;
  std::vector<RowIds> by_member;
  for (const bool reads : tiles_->readers) by_member.push_back(reads ? rows : few);
  tiles_->coming = send_rows(by_member, Use::peek, requested_.value_or(0));
}

// The next one leaves before anybody waits for this one.
TableExchange::Rows TableExchange::take_tile() {
  if (!is_shared()) {
    const std::int64_t first = tiles_->next % vocabulary();
    const RowIds ids = range_of_rows(first, std::min(tile_rows(width_), vocabulary() - first));
    tiles_->next = first + static_cast<std::int64_t>(ids.size());
    return own_rows(ids, true);
  }
  LACONIC_ASSERT(tiles_->coming.exchange != nullptr, "the whole table has been looked up");
  Coming coming = std::move(tiles_->coming);
  if (tiles_->next < vocabulary()) send_tile();
  Rows tile = empty_rows(coming.ids);
  take_rows(coming, tile);
  return tile;
}

void TableExchange::peek_tiles(const std::vector<bool>& readers) {
  LACONIC_ASSERT(put_off_.empty(), "some rows are not what they should be yet");
  tiles_ = Tiles{.readers = readers, .next = 0, .coming = {}};
  if (!is_shared() || std::ranges::count(readers, true) == 0) return;
  send_tile();
  if (readers[index(world_.dp_member())]) return;
  while (tiles_->coming.exchange != nullptr) take_tile();
}

void TableExchange::end_peek() {
  peeked_.reset();
  tiles_.reset();
}

}  // namespace laconic
