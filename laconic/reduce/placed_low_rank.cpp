#include "laconic/reduce/placed_low_rank.hpp"

#include <algorithm>

#include "laconic/base/denormals.hpp"
#include "laconic/codec/device_floats.hpp"

namespace laconic {

PlacedLowRank::PlacedLowRank(const SharedLowRankSpec& spec, const std::vector<NamedTensor>& tensors,
                             int members, bool is_on_device)
    : spec_(spec),
      tensors_(tensors),
      members_(members),
      is_on_device_(is_on_device),
      shared_(spec, tensors, members) {}

void PlacedLowRank::settle() {
  if (!is_on_device_ || is_measured_ == (device_ == nullptr)) return;
  if (is_measured_) {
    shared_.load(device_->save());
    device_ = nullptr;
  } else {
    device_ = std::make_unique<DeviceLowRank>(spec_, tensors_, members_);
    device_->load(shared_.save());
    shared_.load({});
  }
}

void PlacedLowRank::begin(std::span<float* const> gradients, FlatSum& raw, FlatSum& left) {
  gradients_.assign(gradients.begin(), gradients.end());
  if (device_ != nullptr) return device_->begin(gradients_, raw.on_device(), left.on_device());
  host_gradients_ = gradients_;
  if (is_on_device_) copy_gradients();
  const std::vector<const float*> inputs(host_gradients_.begin(), host_gradients_.end());
  shared_.begin(inputs, raw.values, left.values);
  raw.upload();
  left.upload();
}

void PlacedLowRank::copy_gradients() {
  std::uint64_t all = 0;
  for (const NamedTensor& tensor : tensors_) all += elements_of(tensor.tensor);
  copies_.resize(all);
  float* to = copies_.data();
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const std::uint64_t elements = elements_of(tensors_[t].tensor);
    download(gradients_[t], {to, elements});
    host_gradients_[t] = to;
    to += elements;
  }
}

void PlacedLowRank::project(FlatSum& left, FlatSum& right) {
  if (device_ != nullptr) return device_->project(left.on_device(), right.on_device());
  left.download();
  shared_.project(left.values, right.values);
  right.upload();
}

void PlacedLowRank::finish(FlatSum& raw, FlatSum& right) {
  if (device_ != nullptr) return device_->finish(raw.on_device(), right.on_device());
  raw.download();
  right.download();
  finish_on_host(raw, right);
  if (!is_on_device_) return;
  for (std::size_t t = 0; t < tensors_.size(); ++t)
    upload(std::span<const float>(host_gradients_[t], elements_of(tensors_[t].tensor)),
           gradients_[t]);
}

// SharedLowRank gives means and we owe sums. The residual of a rank is its contribution minus the
// mean; over all ranks that adds up to the sum of contributions minus our output, so what is
// outstanding is right as it stands. What travelled raw is taken from its sum, which a
// division and a product might not give back.
void PlacedLowRank::finish_on_host(FlatSum& raw, FlatSum& right) {
  shared_.finish(raw.values, right.values, host_gradients_);
  const ScopedDenormals flush(true);
  const auto members = static_cast<float>(members_);
  const float* sums = raw.values.data();
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const std::uint64_t elements = elements_of(tensors_[t].tensor);
    float* out = host_gradients_[t];
    if (shared_.is_encoded(t)) {
      for (std::uint64_t i = 0; i < elements; ++i) out[i] *= members;
    } else {
      std::copy_n(sums, elements, out);
      sums += elements;
    }
  }
}

void PlacedLowRank::commit() {
  device_ != nullptr ? device_->commit() : shared_.commit();
}

void PlacedLowRank::abandon() {
  shared_.abandon();
  if (device_ != nullptr) device_->abandon();
}

void PlacedLowRank::measure_fidelity(Fidelity* into) {
  shared_.measure_fidelity(into);
  is_measured_ = into != nullptr;
}

NamedFloats PlacedLowRank::save() const {
  return device_ != nullptr ? device_->save() : shared_.save();
}

void PlacedLowRank::load(const NamedFloats& state) {
  shared_.load(state);
  device_ = nullptr;
}

}  // namespace laconic
