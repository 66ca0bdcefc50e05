#include "laconic/grid/overlap.hpp"

#include <algorithm>
#include <utility>

namespace laconic {

namespace {

// How soon somebody waits, for deadline_key(). What is asked for is more urgent than either.
constexpr std::uint8_t kNow = 0, kNext = 1;

// Weights and vectors ahead of their use. Grids that gather no weights have vectors alone: these
// are few bytes, but there is no need to bring those of all blocks at once.
constexpr std::size_t kMostAhead = 4;

bool are_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b,
                            [](const at::Tensor& x, const at::Tensor& y) { return x.is_same(y); });
}

}  // namespace

TensorGrid::Pending GridOverlap::gather(const Source& source) {
  if (!is_on_ || !is_in_pass_) return source.start(kNow);
  order_.ask(source.place);
  TensorGrid::Pending pending;
  if (!ahead_.empty() && ahead_.front().source.place == source.place &&
      are_same(ahead_.front().source.from, source.from)) {
    pending = std::move(ahead_.front().pending);
    ahead_.pop_front();
  } else {
    discard();
    pending = source.start(kNow);
  }
  sources_.insert_or_assign(source.place, source);
  start_expected();
  return pending;
}

void GridOverlap::start_expected() {
  const auto is_large = [](const Ahead& ahead) { return !ahead.source.is_small; };
  const std::span<const GatherPlace> expected = order_.expected();
  while (ahead_.size() < std::min(expected.size(), kMostAhead) &&
         std::ranges::none_of(ahead_, is_large)) {
    const Source& next = sources_.at(expected[ahead_.size()]);
    ahead_.push_back({next, next.start(kNext)});
  }
}

// All ranks have begun it, so it comes to its end at all of them.
void GridOverlap::discard() {
  for (Ahead& ahead : ahead_) ahead.pending.get();
  ahead_.clear();
}

void GridOverlap::leave(TensorGrid::Pending sum, std::function<void(const at::Tensor&)> done) {
  settle();
  leaving_ = std::move(sum);
  done_ = std::move(done);
  if (!is_on_ || !is_in_pass_) settle();
}

void GridOverlap::settle() {
  if (!done_) return;
  TensorGrid::Pending leaving = std::move(leaving_);
  const auto done = std::exchange(done_, nullptr);
  done(leaving.get());
}

void GridOverlap::begin(const PassName& pass) {
  is_in_pass_ = true;
  order_.begin(pass);
}

void GridOverlap::end() {
  settle();
  order_.end();
  discard();
  is_in_pass_ = false;
}

void GridOverlap::give_up() {
  ahead_.clear();
  leaving_ = TensorGrid::Pending();
  done_ = nullptr;
  order_.end();
  is_in_pass_ = false;
}

GridPass::GridPass(TensorGrid* grid, const PassName& pass) : grid_(grid) {
  if (grid_ != nullptr) grid_->overlap().begin(pass);
}

GridPass::~GridPass() {
  if (grid_ != nullptr) grid_->overlap().give_up();
}

void GridPass::end() {
  if (grid_ == nullptr) return;
  grid_->overlap().end();
  grid_ = nullptr;
}

}  // namespace laconic
