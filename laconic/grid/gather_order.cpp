#include "laconic/grid/gather_order.hpp"

namespace laconic {

void GatherOrder::begin(const PassName& pass) {
  order_ = &last_[pass];
  asked_ = 0;
}

void GatherOrder::ask(const GatherPlace& place) {
  if (order_ == nullptr) return;
  if (asked_ == order_->size() || (*order_)[asked_] != place) {
    order_->resize(asked_);
    order_->push_back(place);
  }
  ++asked_;
}

std::span<const GatherPlace> GatherOrder::expected() const {
  if (order_ == nullptr) return {};
  return std::span<const GatherPlace>(*order_).subspan(asked_);
}

void GatherOrder::end() {
  if (order_ != nullptr) order_->resize(asked_);
  order_ = nullptr;
}

}  // namespace laconic
