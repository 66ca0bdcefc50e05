#include "laconic/update/table_exchange.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

constexpr std::uint32_t kUses = 5;

std::byte* bytes_at(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

template <class T>
RowColumns<T> columns_in(const at::Tensor& value, const at::Tensor& moment1,
                         const at::Tensor& moment2) {
  return {.value = value.data_ptr<T>(),
          .moment1 = moment1.defined() ? moment1.data_ptr<T>() : nullptr,
          .moment2 = moment2.defined() ? moment2.data_ptr<T>() : nullptr,
          .width = value.size(1)};
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
      shares_{options.cut, static_cast<int>(world.dp_group().size()), width_},
      item_(weights.parameters[place_].value.element_size()),
      is_apart_(options.is_apart || weights.device() != weights.parameters[place_].value.device()),
      decay_(weights.parameters[place_].value.size(0), options.decays),
      exchanges_(kUses, 0) {
  const std::int64_t columns = shares_.columns(world.dp_member()).size();
  const std::int64_t rows = options.cut == ReplicaCut::rows
                                ? dealt_rows(vocabulary(), members(), world.dp_member())
                                : vocabulary();
  LACONIC_ASSERT(value().size(0) == rows && value().size(1) == columns,
                 fmt::format("[{}, {}] of [{}, {}], expected [{}, {}]", value().size(0),
                             value().size(1), vocabulary(), width_, rows, columns));
}

RowStretch TableExchange::all_columns() const {
  const std::int64_t held = value().size(1);
  return stretch_of(memory(), held, item_, {0, held});
}

// Where those of the rows lie that this rank holds.
RowIds TableExchange::held_here(const RowIds& rows) const {
  return shares_.stored(shares_.held(rows, world_.dp_member()));
}

std::uint64_t TableExchange::block() const {
  return static_cast<std::uint64_t>(first_user(weights_.spec, parameter_));
}

// Units: some for each table, by what they are for.
RowExchangeSpec TableExchange::spec_for(Use use) {
  const bool is_gradient = use == Use::prior || use == Use::delayed;
  const auto u = static_cast<std::size_t>(use);
  const bool is_even = options_.cut != ReplicaCut::columns || width_ % members() == 0;
  RowExchangeSpec spec{.unit = options_.number * kUses + static_cast<std::uint32_t>(u),
                       .number = exchanges_[u]++,
                       .dtype = dtype_of(is_gradient ? value().scalar_type() : row_type()),
                       .sent = {},
                       .received = {}};
  spec.columns = is_even ? static_cast<std::uint64_t>(shares_.columns(0).size()) : 0;
  spec.seed = options_.seed + spec.unit;
  if (use == Use::rows || use == Use::early) spec.codec = options_.rows;
  if (is_gradient) spec.codec = options_.gradient;
  return spec;
}

// --- backward

TableExchange::Part TableExchange::send_part(const std::vector<RowIds>& by_member,
                                             std::span<const std::int64_t> places,
                                             const at::Tensor& gradient, Use use, DeadlineKey key) {
  const int self = world_.dp_member();
  Part part{.step = *requested_, .by_member = by_member, .exchange = nullptr};
  RowExchangeSpec spec = spec_for(use);
  const RowIds& mine = by_member[index(self)];
  for (int i = 0; i < members(); ++i) {
    spec.sent.push_back(shares_.held_elements(mine, i));
    spec.received.push_back(shares_.held_elements(by_member[index(i)], self));
  }
  part.exchange = std::make_unique<RowExchange>(world_, std::move(spec));
  const std::vector<std::int64_t> all(places.begin(), places.end());
  for (int i = 0; i < members(); ++i)
    gather_rows(stretch_of(bytes_at(gradient), width_, item_, shares_.columns(i)),
                rows_at(all, shares_.held_places(mine, i)), part.exchange->to(i));
  part.exchange->post(static_cast<std::uint64_t>(part.step), key);
  return part;
}

// The sum of what blocks have left, first block first. What nobody on this rank has looked up, in
// all microbatches, has a gradient of zeros.
at::Tensor TableExchange::step_gradient() {
  if (!rows_) take_step_rows();
  at::Tensor sum;
  for (auto& [block, leaf] : rows_->leaves)
    if (const at::Tensor gradient = leaf.grad(); gradient.defined())
      sum = sum.defined() ? sum.add_(gradient) : gradient.contiguous();
  return sum.defined() ? sum : at::zeros_like(rows_->values);
}

void TableExchange::give(const RowIds& next) {
  const at::NoGradGuard no_grad;
  given_ = Given{.gradient = Arrival(step_gradient()), .has_strays = {}, .next = next};
  if (rows_->has_strays.defined()) given_->has_strays = Arrival(rows_->has_strays);
  rows_.reset();
  if (!is_apart_) send();
}

void TableExchange::send() {
  const at::NoGradGuard no_grad;
  LACONIC_ASSERT(given_.has_value(), "nobody has given a gradient");
  const Given given = std::move(*std::exchange(given_, std::nullopt));
  const RowIds& next = given.next;
  const at::Tensor& gradient = given.gradient.wait();
  const at::Tensor& has_strays = given.has_strays.wait();
  LACONIC_ASSERT(!has_strays.defined() || !has_strays.item<bool>(),
                 "ids were looked up that nobody has announced");
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
  const bool is_split = options_.splits && pays_to_split(delayed);
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
}

// All ranks see the same lists, so they come to the same answer. What a peer gets of a row is its
// share, on average.
bool TableExchange::pays_to_split(const std::vector<RowIds>& delayed) const {
  std::uint64_t rows = 0, later = 0;
  for (const RowIds& list : step_rows_->by_member) rows += list.size();
  for (const RowIds& list : delayed) later += list.size();
  const auto row_bytes = static_cast<std::uint64_t>(width_) * item_ *
                         static_cast<std::uint64_t>(is_shared() ? 1 : members());
  return laconic::pays_to_split(options_.price, rows, later, row_bytes, members());
}

bool TableExchange::is_finite() const {
  return is_finite_;
}

TableExchange::Sum TableExchange::sum_of(Part& part) const {
  const at::NoGradGuard no_grad;
  part.exchange->wait();
  std::vector<RowIds> of_members;
  for (const RowIds& rows : part.by_member) of_members.push_back(held_here(rows));
  Sum sum{.rows = union_of(of_members), .values = {}};
  const std::int64_t held = value().size(1);
  sum.values = at::empty({static_cast<std::int64_t>(sum.rows.size()), held},
                         value().options().requires_grad(false));
  with_row_type(value(), [&]<class T>() {
    std::vector<const T*> from;
    for (int i = 0; i < members(); ++i)
      from.push_back(reinterpret_cast<const T*>(part.exchange->from(i)));
    sum_rows<T>(of_members, from, sum.rows, held, sum.values.template data_ptr<T>());
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
  with_row_type(value(), [&]<class T>() {
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
  given_.reset();
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
  if (!writes_decay) return;
  note_early_decay();
  with_row_type(value(),
                [&]<class T>() { decay_.catch_up_all<T>(columns_in<T>(value(), {}, {})); });
  if (early_) early_->steps = 0;
}

}  // namespace laconic
