#include "laconic/reduce/flat_sum.hpp"

#include "laconic/codec/device_floats.hpp"

namespace laconic {

FlatSum::FlatSum(const SumRequest& request, std::uint32_t unit, std::size_t elements,
                 double raw_elements)
    : elements_(elements), device_(request.is_on_device ? elements * sizeof(float) : 0) {
  if (elements == 0) return;
  CollectiveSpec spec = collective_of(request, unit, elements);
  spec.raw_per_byte = raw_elements / static_cast<double>(elements);
  sum_ = std::make_unique<Collective>(request.progress_thread.engine(), spec);
}

void FlatSum::begin(std::uint64_t step) {
  if (sum_) sum_->begin(step);
  operation_ = nullptr;
  is_done_ = sum_ == nullptr;
}

void FlatSum::start(DeadlineKey key) {
  if (!sum_) return;
  std::byte* buffer =
      device_.is_empty() ? reinterpret_cast<std::byte*>(values.data()) : device_.data();
  operation_ = sum_->operation(buffer, key);
}

bool FlatSum::advance(Engine& engine) {
  if (!is_done_) is_done_ = operation_->advance(engine);
  return is_done_;
}

bool FlatSum::polls() const {
  return !is_done_ && operation_ && operation_->polls();
}

void FlatSum::commit() {
  if (sum_) sum_->commit();
}

void FlatSum::abandon() {
  if (sum_) sum_->abandon();
}

void FlatSum::set_codec(const CodecPair& codecs) {
  if (sum_) sum_->set_codec(codecs.up, codecs.down);
}

void FlatSum::measure_fidelity(bool is_on) {
  if (sum_) sum_->measure_fidelity(is_on);
}

Fidelity FlatSum::fidelity() const {
  return sum_ ? sum_->fidelity() : Fidelity();
}

void FlatSum::upload() {
  if (!device_.is_empty()) laconic::upload(values, device_.floats());
}

void FlatSum::download() {
  if (device_.is_empty()) return;
  values.resize(elements_);
  laconic::download(device_.floats(), values);
}

}  // namespace laconic
