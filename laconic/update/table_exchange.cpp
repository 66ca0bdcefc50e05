#include "laconic/update/table_exchange.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/model/ops.hpp"
#include "laconic/rows/row_memory.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

std::byte* bytes_at(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

// body.operator()<T>() for the type of the numbers.
template <class Body>
void with_type(const at::Tensor& tensor, const Body& body) {
  if (tensor.scalar_type() == at::kDouble)
    body.template operator()<double>();
  else
    body.template operator()<float>();
}

template <class T>
RowColumns<T> columns_in(const at::Tensor& value, const at::Tensor& moment1,
                         const at::Tensor& moment2) {
  return {.value = value.data_ptr<T>(),
          .moment1 = moment1.defined() ? moment1.data_ptr<T>() : nullptr,
          .moment2 = moment2.defined() ? moment2.data_ptr<T>() : nullptr,
          .width = value.size(1)};
}

std::uint64_t count(const RowIds& rows, const Range& columns) {
  return rows.size() * static_cast<std::uint64_t>(columns.size());
}

}  // namespace

StepRows step_rows(std::vector<RowIds> by_member) {
  RowIds all = union_of(by_member);
  return {std::move(by_member), std::move(all)};
}

TableExchange::TableExchange(World& world, Weights& weights, std::size_t parameter,
                             const TableOptions& options)
    : world_(world),
      weights_(weights),
      parameter_(parameter),
      place_(weights.places[parameter]),
      options_(options),
      width_(weights.spec.parameters[parameter].sizes[1]),
      item_(weights.parameters[place_].value.element_size()),
      decay_(weights.spec.parameters[parameter].sizes[0], options.decays),
      exchanges_(4, 0) {
  LACONIC_ASSERT(value().size(1) == columns(world.dp_member()).size(),
                 fmt::format("{} columns of {}, expected {}", value().size(1), width_,
                             columns(world.dp_member()).size()));
}

std::uint64_t TableExchange::block() const {
  return static_cast<std::uint64_t>(first_user(weights_.spec, parameter_));
}

// Units: four for each table, by what they are for.
RowExchangeSpec TableExchange::spec_for(Use use) const {
  const auto u = static_cast<std::size_t>(use);
  const bool is_even = columns(0).size() == width_ || width_ % members() == 0;
  RowExchangeSpec spec{.unit = options_.number * 4 + static_cast<std::uint32_t>(u),
                       .number = exchanges_[u],
                       .dtype = dtype_of(value().scalar_type()),
                       .sent = {},
                       .received = {}};
  spec.columns = is_even ? static_cast<std::uint64_t>(columns(0).size()) : 0;
  spec.seed = options_.seed + spec.unit;
  if (use == Use::rows) spec.codec = options_.rows;
  if (use == Use::prior || use == Use::delayed) spec.codec = options_.gradient;
  return spec;
}

// --- forward

std::unique_ptr<RowExchange> TableExchange::send_rows(const StepRows& rows, Use use,
                                                      std::int64_t step) {
  const int self = world_.dp_member();
  const auto& mine = rows.by_member[static_cast<std::size_t>(self)];
  RowExchangeSpec spec = spec_for(use);
  ++exchanges_[static_cast<std::size_t>(use)];
  for (int i = 0; i < members(); ++i) {
    spec.sent.push_back(count(rows.by_member[static_cast<std::size_t>(i)], columns(self)));
    spec.received.push_back(count(mine, columns(i)));
  }
  auto exchange = std::make_unique<RowExchange>(world_, std::move(spec));
  const std::int64_t held = value().size(1);
  for (int i = 0; i < members(); ++i) {
    const RowIds& ids = rows.by_member[static_cast<std::size_t>(i)];
    gather_rows(stretch_of(memory(), held, item_, {0, held}), ids, exchange->to(i));
    if (use == Use::peek) shrink(ids, exchange->to(i));
  }
  const auto when = static_cast<std::uint64_t>(step);
  exchange->post(when, deadline_key(when, block(), 1));
  return exchange;
}

// What rows that are only looked at would be, had somebody read them.
void TableExchange::shrink(const RowIds& ids, std::byte* packed) const {
  if (!decay_.is_used()) return;
  const std::int64_t held = value().size(1);
  with_type(value(), [&]<class T>() {
    T* row = reinterpret_cast<T*>(packed);
    for (const std::int64_t id : ids) {
      decay_.shrink(id, row, held);
      row += held;
    }
  });
}

void TableExchange::request(std::int64_t step, std::shared_ptr<const StepRows> rows) {
  LACONIC_ASSERT(put_off_.empty() || put_off_.front().part.step >= step - 1,
                 fmt::format("rows of step {} are put off beyond their deadline at step {}",
                             put_off_.front().part.step, step));
  with_type(value(),
            [&]<class T>() { decay_.catch_up<T>(rows->all, columns_in<T>(value(), {}, {})); });
  if (options_.is_cut) coming_ = send_rows(*rows, Use::rows, step);
  rows_.reset();
  step_rows_ = std::move(rows);
  requested_ = step;
}

TableExchange::Rows TableExchange::empty_rows(const RowIds& ids) const {
  const auto rows = static_cast<std::int64_t>(ids.size());
  Rows made{.ids = ids,
            .leaf = at::empty({rows + 1, width_}, value().options().requires_grad(false))};
  made.leaf.narrow(0, rows, 1).zero_();
  return made;
}

// Of a table that is whole here.
TableExchange::Rows TableExchange::own_rows(const RowIds& ids) const {
  Rows own = empty_rows(ids);
  gather_rows(stretch_of(memory(), width_, item_, {0, width_}), ids, bytes_at(own.leaf));
  return own;
}

TableExchange::Rows TableExchange::take_rows(const RowIds& ids, RowExchange& exchange) const {
  exchange.wait();
  Rows taken = empty_rows(ids);
  for (int i = 0; i < members(); ++i)
    put_rows(exchange.from(i), ids.size(),
             stretch_of(bytes_at(taken.leaf), width_, item_, columns(i)));
  return taken;
}

at::Tensor TableExchange::look_up(const at::Tensor& ids) {
  if (!peeked_ && !rows_) {
    LACONIC_ASSERT(step_rows_ != nullptr, "nobody has asked for rows");
    const RowIds& mine = step_rows_->by_member[static_cast<std::size_t>(world_.dp_member())];
    rows_ = coming_ != nullptr ? take_rows(mine, *coming_) : own_rows(mine);
    rows_->leaf.requires_grad_(true);
    coming_.reset();
  }
  const Rows& rows = peeked_ ? *peeked_ : *rows_;
  const at::Tensor wanted = ids.flatten().contiguous();
  const at::Tensor places = at::empty_like(wanted);
  const auto* id = wanted.data_ptr<std::int64_t>();
  auto* place = places.data_ptr<std::int64_t>();
  std::int64_t padding = -1;
  for (std::int64_t i = 0; i < wanted.numel(); ++i) {
    const auto found = std::ranges::lower_bound(rows.ids, id[i]);
    if (found != rows.ids.end() && *found == id[i]) {
      place[i] = found - rows.ids.begin();
      continue;
    }
    LACONIC_ASSERT(padding == -1 || padding == id[i],
                   fmt::format("nobody has announced the ids {} and {}", padding, id[i]));
    padding = id[i];
    place[i] = static_cast<std::int64_t>(rows.ids.size());
  }
  return table_rows(rows.leaf, places);
}

void TableExchange::peek(const StepRows& rows) {
  LACONIC_ASSERT(put_off_.empty(), "some rows are not what they should be yet");
  const RowIds& mine = rows.by_member[static_cast<std::size_t>(world_.dp_member())];
  if (options_.is_cut) {
    const auto exchange = send_rows(rows, Use::peek, requested_.value_or(0));
    peeked_ = take_rows(mine, *exchange);
    return;
  }
  peeked_ = own_rows(mine);
  shrink(mine, bytes_at(peeked_->leaf));
}

// --- backward

TableExchange::Part TableExchange::send_part(const std::vector<RowIds>& by_member,
                                             std::span<const std::int64_t> places,
                                             const at::Tensor& gradient, Use use, DeadlineKey key) {
  const int self = world_.dp_member();
  Part part{.step = *requested_, .by_member = by_member, .exchange = nullptr};
  RowExchangeSpec spec = spec_for(use);
  ++exchanges_[static_cast<std::size_t>(use)];
  for (int i = 0; i < members(); ++i) {
    spec.sent.push_back(count(by_member[static_cast<std::size_t>(self)], columns(i)));
    spec.received.push_back(count(by_member[static_cast<std::size_t>(i)], columns(self)));
  }
  part.exchange = std::make_unique<RowExchange>(world_, std::move(spec));
  for (int i = 0; i < members(); ++i)
    gather_rows(stretch_of(bytes_at(gradient), width_, item_, columns(i)), places,
                part.exchange->to(i));
  part.exchange->post(static_cast<std::uint64_t>(part.step), key);
  return part;
}

// What nobody on this rank has looked up, in all microbatches, has a gradient of zeros.
void TableExchange::give(const RowIds& next) {
  const at::NoGradGuard no_grad;
  if (!rows_) look_up(at::empty({0}, at::kLong));
  at::Tensor gradient = rows_->leaf.grad();
  if (!gradient.defined()) gradient = at::zeros_like(rows_->leaf);
  gradient = gradient.contiguous();
  is_finite_ = gradient.isfinite().all().item<bool>();
  std::vector<RowIds> prior, delayed;
  RowSplit mine;
  for (int i = 0; i < members(); ++i) {
    const RowIds& ids = step_rows_->by_member[static_cast<std::size_t>(i)];
    RowSplit split = split_rows(ids, options_.splits ? next : ids);
    prior.push_back(rows_at(ids, split.prior));
    delayed.push_back(rows_at(ids, split.delayed));
    if (i == world_.dp_member()) mine = std::move(split);
  }
  const bool is_split = options_.splits && is_worth_a_message(delayed);
  if (!is_split) {
    prior = step_rows_->by_member;
    mine = split_rows(prior[static_cast<std::size_t>(world_.dp_member())],
                      prior[static_cast<std::size_t>(world_.dp_member())]);
  }
  const auto step = static_cast<std::uint64_t>(*requested_);
  prior_ = send_part(prior, mine.prior, gradient, Use::prior, deadline_key(step + 1, block(), 0));
  if (is_split)
    delayed_ = send_part(delayed, mine.delayed, gradient, Use::delayed,
                         deadline_key(step + 2, block(), 0));
  rows_.reset();
}

// All ranks see the same lists, so they come to the same answer.
bool TableExchange::is_worth_a_message(const std::vector<RowIds>& delayed) const {
  std::uint64_t rows = 0;
  for (const RowIds& list : delayed) rows += list.size();
  const auto n = static_cast<std::uint64_t>(members());
  const auto width = static_cast<std::uint64_t>(options_.is_cut ? width_ / members() : width_);
  return rows * width * item_ / n >= options_.least_delayed;
}

bool TableExchange::is_finite() const {
  return is_finite_;
}

TableExchange::Sum TableExchange::sum_of(Part& part) const {
  const at::NoGradGuard no_grad;
  part.exchange->wait();
  Sum sum{.rows = union_of(part.by_member), .values = {}};
  const std::int64_t held = value().size(1);
  sum.values = at::zeros({static_cast<std::int64_t>(sum.rows.size()), held},
                         value().options().requires_grad(false));
  with_type(value(), [&]<class T>() {
    for (int i = 0; i < members(); ++i)
      add_rows(reinterpret_cast<const T*>(part.exchange->from(i)),
               places_in(sum.rows, part.by_member[static_cast<std::size_t>(i)]), held,
               sum.values.template data_ptr<T>());
  });
  part.exchange.reset();
  return sum;
}

bool TableExchange::has_arrived() const {
  return prior_ && prior_->exchange->has_arrived() &&
         std::ranges::all_of(put_off_, [&](const Delayed& one) {
           return one.part.step >= *requested_ || one.part.exchange->has_arrived();
         });
}

void TableExchange::wait() {
  LACONIC_ASSERT(prior_.has_value(), "nobody has given a gradient");
  sum_ = sum_of(*prior_);
}

double TableExchange::square() const {
  LACONIC_ASSERT(sum_ && !delayed_, "not all of the gradient is here");
  const double norm = sum_->values.to(at::kDouble).norm().item<double>();
  return norm * norm;
}

void TableExchange::update(const Sum& sum, const RowRule& rule, std::int64_t number,
                           const at::Tensor& moment1, const at::Tensor& moment2) {
  with_type(value(), [&]<class T>() {
    update_rows<T>(rule, sum.rows, sum.values.data_ptr<T>(),
                   columns_in<T>(value(), moment1, moment2));
  });
  decay_.note(sum.rows, number);
}

void TableExchange::apply(const RowRule& rule, const at::Tensor& moment1,
                          const at::Tensor& moment2) {
  const std::int64_t number = decay_.steps();
  update(*sum_, rule, number, moment1, moment2);
  sum_.reset();
  prior_.reset();
  decay_.add_step(rule);
  if (delayed_) put_off_.push_back({std::move(*delayed_), rule, number, moment1, moment2});
  delayed_.reset();
}

// A message that is on its way must find its buffer.
void TableExchange::drop() {
  for (std::optional<Part>* part : {&prior_, &delayed_}) {
    if (*part && (*part)->exchange != nullptr) (*part)->exchange->wait();
    part->reset();
  }
  sum_.reset();
  rows_.reset();
}

void TableExchange::apply_delayed() {
  for (Delayed& one : put_off_) {
    if (one.part.step >= *requested_) continue;
    update(sum_of(one.part), one.rule, one.number, one.moment1, one.moment2);
  }
  std::erase_if(put_off_, [&](const Delayed& one) { return one.part.step < *requested_; });
}

void TableExchange::settle(bool writes_decay) {
  for (Delayed& one : put_off_)
    update(sum_of(one.part), one.rule, one.number, one.moment1, one.moment2);
  put_off_.clear();
  if (writes_decay)
    with_type(value(), [&]<class T>() { decay_.catch_up_all<T>(columns_in<T>(value(), {}, {})); });
}

}  // namespace laconic
