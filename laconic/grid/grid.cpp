// How a tensor becomes a collective. Its elements go into a buffer on the host, at the place that
// this member's chunk has there (a gather), or all of them (a sum); the collective's plan is walked
// by the progress thread, or in this thread where nothing else is to be done meanwhile; the result
// is the buffer, or this member's chunk of it. The plans, codecs and lanes are those of all
// collectives (collective/run.hpp); what is made for one call serves the next of the same kind.

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/collective/run.hpp"
#include "laconic/grid/grid_rows.hpp"
#include "laconic/grid/overlap.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {

namespace {

// Microbatches of a step that codecs can tell apart.
constexpr std::uint64_t kMostMicrobatches = 1 << 12;

// The unit of tags is the set of axes: of two ranks that are in several groups together, each
// message is of one.
std::uint32_t unit_of(const Axes& axes) {
  std::uint32_t unit = 0;
  for (const Axis axis : axes)
    unit |= 1U << (static_cast<unsigned>(axis) - static_cast<unsigned>(Axis::tp0));
  return unit;
}

CollectiveKind kind_of(GridCall call) {
  switch (call) {
    case GridCall::gather: return CollectiveKind::all_gather;
    case GridCall::scatter: return CollectiveKind::reduce_scatter;
    case GridCall::sum: return CollectiveKind::all_reduce;
  }
  return CollectiveKind::all_gather;
}

std::int64_t row_elements(const at::Tensor& x) {
  std::int64_t elements = 1;
  for (std::int64_t d = 1; d < x.dim(); ++d) elements *= x.size(d);
  return elements;
}

at::ScalarType summed_type(const at::Tensor& x) {
  return x.element_size() < 4 ? at::kFloat : x.scalar_type();
}

// `beside` tells ranks apart that make the same exchange elsewhere in the mesh: their errors shall
// not be the same.
std::uint64_t seed_of(std::uint64_t seed, const GridSite& site, std::uint64_t beside) {
  const Key key =
      derive(derive(derive(key_of(seed), "grid"), beside, 0),
             static_cast<std::uint64_t>(site.block) << 16 | static_cast<std::uint64_t>(site.place),
             static_cast<std::uint64_t>(site.traffic));
  return std::uint64_t{key.hi} << 32 | key.lo;
}

}  // namespace

Algorithm grid_algorithm(GridCall call, std::uint64_t bytes, int members, bool is_lossy) {
  const double message_bytes = static_cast<double>(bytes) / members;
  return goes_round_a_ring(message_bytes, members, is_lossy && call != GridCall::gather)
             ? Algorithm::ring
             : Algorithm::direct;
}

// One call. `buffer` is 1-D on the host.
struct TensorGrid::Exchange {
  GridCall call;
  const Axes& axes;
  const GridSite& site;
  at::Tensor buffer;
  std::vector<std::uint64_t> offsets;
  GridMask* mask = nullptr;
  // A sum of which every member gets all that the others bring: one chunk.
  bool is_gathered() const { return call == GridCall::sum && offsets.size() == 2; }
};

TensorGrid::TensorGrid(ProgressThread& progress_thread, const GridPlan& plan, const Mesh& mesh,
                       Rank rank, GridCodecs codecs, std::uint64_t seed)
    : progress_thread_(progress_thread),
      plan_(plan),
      mesh_(mesh),
      rank_(rank),
      coord_(coord_of(mesh, rank)),
      codecs_(std::move(codecs)),
      seed_(seed),
      made_(std::make_unique<Made>()),
      overlap_(std::make_unique<GridOverlap>()) {}

TensorGrid::~TensorGrid() = default;

void TensorGrid::begin(std::uint64_t step, std::uint64_t microbatch) {
  step_ = step;
  microbatch_ = microbatch % kMostMicrobatches;
}

// Replicas see one decoded weight, as they have one weight.
std::uint64_t TensorGrid::index_beside(const Exchange& exchange) const {
  const bool is_weight =
      exchange.site.traffic == Traffic::tp_weight && exchange.call == GridCall::gather;
  Axes beside;
  if (!is_weight) beside.push_back(Axis::dp);
  for (const Axis axis : kTensorAxes)
    if (std::ranges::find(exchange.axes, axis) == exchange.axes.end()) beside.push_back(axis);
  return static_cast<std::uint64_t>(index_along(mesh_, coord_, beside));
}

std::vector<float> TensorGrid::take_loaded(const std::string& name) {
  auto found = loaded_.extract(name);
  return found.empty() ? std::vector<float>() : std::move(found.mapped());
}

// Raw, a gathered sum would go in two steps: 2 / g of what its g members send.
double TensorGrid::raw_per_byte_of(const Exchange& exchange) const {
  const double coded = exchange.site.stands_for == 0
                           ? 1
                           : static_cast<double>(exchange.site.stands_for) /
                                 static_cast<double>(exchange.site.columns);
  return exchange.is_gathered() ? coded * 2 / extent(exchange.axes) : coded;
}

TensorGrid::Row& TensorGrid::row_for(const Exchange& exchange) {
  const GridCodec choice = codec_of(exchange.site, exchange.call);
  const bool is_plain = !is_lossy(choice.codec);
  const std::uint64_t seed = is_plain ? 0 : seed_of(seed_, exchange.site, index_beside(exchange));
  const std::uint64_t columns = is_plain ? 0 : static_cast<std::uint64_t>(exchange.site.columns);
  const Dtype dtype = dtype_of(exchange.buffer.scalar_type());
  const double raw_per_byte = raw_per_byte_of(exchange);
  const Made::Purpose purpose{exchange.call, unit_of(exchange.axes), exchange.site.traffic,
                              dtype,         to_text(choice.codec),  seed,
                              columns,       raw_per_byte,           exchange.offsets};
  const auto [first, last] = made_->rows.equal_range(purpose);
  for (auto row = first; row != last; ++row)
    if (!row->second.is_under_way) return row->second;
  const auto elements = static_cast<std::int64_t>(exchange.offsets.back());
  const Algorithm algorithm =
      exchange.is_gathered()
          ? Algorithm::gathered
          : grid_algorithm(exchange.call, max_payload_bytes(choice.codec, {dtype, {elements}}),
                           extent(exchange.axes), !is_plain);
  // Of the same parameter in every step, so each message may begin where the last one ended.
  const bool is_warm = std::holds_alternative<LowRank>(choice.codec) &&
                       exchange.site.traffic == Traffic::tp_weight &&
                       exchange.call == GridCall::scatter;
  const bool remembers = is_warm || (!is_plain && choice.has_feedback);
  LACONIC_ASSERT(!remembers || first == last, "two sums of one place are under way");
  auto collective = std::make_unique<Collective>(
      progress_thread_.engine(), CollectiveSpec{.traffic = exchange.site.traffic,
                                                .unit = unit_of(exchange.axes),
                                                .kind = kind_of(exchange.call),
                                                .algorithm = algorithm,
                                                .group = group_along(mesh_, rank_, exchange.axes),
                                                .dtype = dtype,
                                                .offsets = exchange.offsets,
                                                .columns = columns,
                                                .up = choice.codec,
                                                .down = choice.codec,
                                                .up_feedback = choice.has_feedback && !is_plain,
                                                .has_warm_start = is_warm,
                                                .seed = seed,
                                                .raw_per_byte = raw_per_byte});
  Row row{.collective = std::move(collective), .is_masked = choice.is_masked};
  if (remembers) {
    row.memory = memory_name(exchange.site);
    CollectiveState state{.up = take_loaded(row.memory), .down = {}};
    state.basis = take_loaded(start_name(row.memory));
    row.collective->load(state);
  }
  if (is_measured_[static_cast<std::size_t>(exchange.site.traffic)])
    row.collective->measure_fidelity(true);
  return made_->rows.emplace(purpose, std::move(row))->second;
}

// One that remembers has a step for all of its operations, which ends with the run's; the others
// have one for each.
void TensorGrid::release(Row& row) {
  row.is_under_way = false;
  if (row.memory.empty()) row.collective->commit();
}

void TensorGrid::count(const Exchange& exchange) {
  const auto members = static_cast<std::uint64_t>(extent(exchange.axes));
  const auto me = static_cast<std::size_t>(index(exchange.axes));
  const std::uint64_t all = exchange.offsets.back();
  GridCount& count = counts_[{exchange.call, exchange.site.traffic, exchange.axes}];
  ++count.calls;
  if (exchange.is_gathered()) {
    count.elements += (members - 1) * all;
    return;
  }
  const std::uint64_t mine = exchange.offsets[me + 1] - exchange.offsets[me];
  switch (exchange.call) {
    case GridCall::gather: count.elements += all - mine; break;
    case GridCall::scatter: count.elements += (members - 1) * mine; break;
    case GridCall::sum: count.elements += (members - 1) * mine + all - mine; break;
  }
}

// Of a gather this member's chunk alone is its own; everything that a sum takes is.
PayloadObserver TensorGrid::observer_of(const Exchange& exchange, const Row& row) const {
  if (!row.is_masked || exchange.mask == nullptr) return {};
  const auto me = static_cast<std::size_t>(index(exchange.axes));
  const bool is_gather = exchange.call == GridCall::gather;
  const std::uint64_t begin = is_gather ? exchange.offsets[me] : 0;
  const std::uint64_t end = is_gather ? exchange.offsets[me + 1] : exchange.offsets.back();
  return [mask = exchange.mask, begin, end](const CodecSpec& codec, const TensorSpec& tensor,
                                            const Slice& slice, ByteView payload) {
    if (slice.elements == 0 || slice.offset < begin || slice.offset >= end) return;
    std::vector<float> factors(slice.elements);
    kept_factors(codec, tensor, payload, factors);
    mask->add(static_cast<std::int64_t>(slice.offset - begin), factors);
  };
}

TensorGrid::Pending TensorGrid::make(const Exchange& exchange) {
  count(exchange);
  const auto made = [&] {
    return GridCallMade{exchange.call,    exchange.site.traffic, exchange.axes,
                        exchange.offsets, exchange.site.block,   exchange.site.is_small};
  };
  if (observer_) observer_(made());
  Row& row = row_for(exchange);
  row.is_under_way = true;
  row.collective->observe(observer_of(exchange, row));
  if (row.memory.empty())
    row.collective->begin(step_ * kMostMicrobatches + microbatch_);
  else if (!std::exchange(row.has_open_step, true))
    row.collective->begin(step_);
  Pending pending;
  pending.grid_ = this;
  pending.row_ = &row;
  if (wait_observer_) pending.made_ = std::make_shared<const GridCallMade>(made());
  pending.operation_ = row.collective->operation(
      static_cast<std::byte*>(exchange.buffer.data_ptr()),
      deadline_key(step_, 0, exchange.site.urgency), false, {}, numbers_[unit_of(exchange.axes)]++);
  return pending;
}

void TensorGrid::Pending::swap(Pending& other) noexcept {
  std::swap(grid_, other.grid_);
  std::swap(operation_, other.operation_);
  std::swap(row_, other.row_);
  std::swap(finish_, other.finish_);
  std::swap(made_, other.made_);
}

TensorGrid::Pending::~Pending() {
  if (operation_ != nullptr) grid_->progress_thread_.drop(operation_);
}

at::Tensor TensorGrid::Pending::get() {
  if (operation_ != nullptr) {
    grid_->progress_thread_.wait(operation_);
    grid_->release(*row_);
    operation_.reset();
  }
  if (made_ != nullptr) grid_->wait_observer_(*std::exchange(made_, nullptr));
  return finish_();
}

// Here and now: no other thread has to be woken for it.
at::Tensor TensorGrid::finished(Pending pending) {
  if (pending.operation_ == nullptr) return pending.get();
  run(progress_thread_.engine(), *pending.operation_);
  release(*pending.row_);
  pending.operation_.reset();
  return pending.get();
}

namespace {

std::vector<std::uint64_t> offsets_of(const std::vector<std::int64_t>& rows, std::int64_t each) {
  std::vector<std::uint64_t> offsets = {0};
  for (const std::int64_t count : rows)
    offsets.push_back(offsets.back() + static_cast<std::uint64_t>(count * each));
  return offsets;
}

std::vector<std::int64_t> with_rows(const at::Tensor& x, std::int64_t rows) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes[0] = rows;
  return sizes;
}

}  // namespace

TensorGrid::Pending TensorGrid::at_once(const at::Tensor& x) {
  Pending pending;
  pending.finish_ = [x] { return x; };
  return pending;
}

TensorGrid::Pending TensorGrid::make_gather(const at::Tensor& mine,
                                            const std::vector<std::int64_t>& rows, const Axes& axes,
                                            const GridSite& site, GridMask* mask) {
  if (extent(axes) == 1) return at_once(mine);
  const at::NoGradGuard no_grad;
  const auto me = static_cast<std::size_t>(index(axes));
  LACONIC_ASSERT(static_cast<int>(rows.size()) == extent(axes) && mine.size(0) == rows[me],
                 fmt::format("{} rows of {} along {}", mine.size(0), rows.size(), to_text(axes)));
  const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  const at::Tensor buffer =
      at::empty(with_rows(mine, all), mine.options().device(at::kCPU).requires_grad(false));
  const std::int64_t begin = std::accumulate(
      rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(me), std::int64_t{0});
  buffer.narrow(0, begin, rows[me]).copy_(mine);
  Pending pending =
      make({GridCall::gather, axes, site, buffer, offsets_of(rows, row_elements(mine)), mask});
  pending.finish_ = [buffer, device = mine.device()] { return buffer.to(device); };
  return pending;
}

TensorGrid::Pending TensorGrid::make_scatter(const at::Tensor& all,
                                             const std::vector<std::int64_t>& rows,
                                             const Axes& axes, const GridSite& site,
                                             GridMask* mask) {
  if (extent(axes) == 1) return at_once(all);
  const at::NoGradGuard no_grad;
  const auto me = static_cast<std::size_t>(index(axes));
  LACONIC_ASSERT(static_cast<int>(rows.size()) == extent(axes) &&
                     all.size(0) == std::accumulate(rows.begin(), rows.end(), std::int64_t{0}),
                 fmt::format("{} rows for {} along {}", all.size(0), rows.size(), to_text(axes)));
  // A buffer of its own: contributions are overwritten.
  at::Tensor buffer = all.detach().to(at::kCPU, summed_type(all)).contiguous();
  if (buffer.is_alias_of(all)) buffer = buffer.clone();
  pay(site, GridCall::scatter, buffer);
  const std::int64_t begin = std::accumulate(
      rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(me), std::int64_t{0});
  Pending pending =
      make({GridCall::scatter, axes, site, buffer, offsets_of(rows, row_elements(all)), mask});
  pending.finish_ = [buffer, begin, mine = rows[me], device = all.device(),
                     type = all.scalar_type()] {
    return buffer.narrow(0, begin, mine).clone().to(device, type);
  };
  return pending;
}

TensorGrid::Pending TensorGrid::in_background(Pending pending) {
  if (pending.operation_ != nullptr) progress_thread_.start(pending.operation_);
  return pending;
}

TensorGrid::Pending TensorGrid::start_gather(const at::Tensor& mine,
                                             const std::vector<std::int64_t>& rows,
                                             const Axes& axes, const GridSite& site) {
  return in_background(make_gather(mine, rows, axes, site, nullptr));
}

TensorGrid::Pending TensorGrid::start_scatter_sum(const at::Tensor& all,
                                                  const std::vector<std::int64_t>& rows,
                                                  const Axes& axes, const GridSite& site) {
  return in_background(make_scatter(all, rows, axes, site, nullptr));
}

at::Tensor TensorGrid::gather(const at::Tensor& mine, const std::vector<std::int64_t>& rows,
                              const Axes& axes, const GridSite& site, GridMask* mask) {
  return finished(make_gather(mine, rows, axes, site, mask));
}

at::Tensor TensorGrid::scatter_sum(const at::Tensor& all, const std::vector<std::int64_t>& rows,
                                   const Axes& axes, const GridSite& site, GridMask* mask) {
  return finished(make_scatter(all, rows, axes, site, mask));
}

TensorGrid::Pending TensorGrid::make_sum(const at::Tensor& mine, const Axes& axes,
                                         const GridSite& site, GridMask* mask) {
  if (extent(axes) == 1) return at_once(mine);
  const at::NoGradGuard no_grad;
  at::Tensor buffer = mine.detach().to(at::kCPU, summed_type(mine)).contiguous();
  if (buffer.is_alias_of(mine)) buffer = buffer.clone();
  // Chunks of a matrix are rows of it, those of anything else elements.
  const auto grain = static_cast<std::uint64_t>(std::max(1, site.columns));
  const int chunks = codec_of(site, GridCall::sum).is_gathered ? 1 : extent(axes);
  Pending pending = make({GridCall::sum, axes, site, buffer,
                          cut(static_cast<std::uint64_t>(buffer.numel()), chunks, grain), mask});
  pending.finish_ = [buffer, device = mine.device(), type = mine.scalar_type()] {
    return buffer.to(device, type);
  };
  return pending;
}

at::Tensor TensorGrid::sum(const at::Tensor& mine, const Axes& axes, const GridSite& site,
                           GridMask* mask) {
  return finished(make_sum(mine, axes, site, mask));
}

TensorGrid::Pending TensorGrid::start_sum(const at::Tensor& mine, const Axes& axes,
                                          const GridSite& site) {
  return in_background(make_sum(mine, axes, site, nullptr));
}

std::vector<std::int64_t> equal_rows(std::int64_t each, int members) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(members), each);
}

}  // namespace laconic
