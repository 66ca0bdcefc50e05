#include "laconic/link/device_feedback.hpp"

#include <bit>

#include "laconic/base/error.hpp"
#include "laconic/codec/codec.hpp"
#include "laconic/codec/device_floats.hpp"

namespace laconic {

namespace {

using kernel::device_clear;
using kernel::device_copy;
using kernel::device_settle;
using kernel::device_tell_sound;

constexpr std::uint64_t kFlagBytes = 16;

std::uint64_t bytes_of_shape(const Feedback::Shape& shape) {
  return elements_of(TensorSpec{Dtype::f32, shape}) * sizeof(float);
}

void ensure(DeviceBuffer& buffer, std::uint64_t bytes) {
  if (buffer.size() != bytes) buffer = DeviceBuffer(bytes);
}

}  // namespace

DeviceFeedback::DeviceFeedback(const Feedback& host) : is_unsound_(kFlagBytes) {
  LACONIC_ASSERT(!host.has_open(), "a step is open on the host");
  committed_.shape = host.shape();
  committed_.residual = uploaded(host.residual());
  if (host.basis().empty()) return;
  committed_.basis = uploaded(host.basis());
  const std::vector<float> ones(kFlagBytes / sizeof(float), std::bit_cast<float>(1u));
  committed_.has_basis = uploaded(ones);
}

DeviceFeedback::Attempt DeviceFeedback::attempt(const Shape& shape, bool with_residual,
                                                std::uint64_t basis_size) {
  const Stream stream = codec_stream();
  const Values& last = newest();
  const bool fits = last.shape == shape;
  Values& next = attempted_;
  // Those of two steps ago serve again: with one message a step there are never more than two.
  if (!is_open_ && next.is_empty()) std::swap(next, open_);
  next.shape = shape;
  Attempt attempt{.is_unsound = is_unsound_.flag()};
  device_clear(is_unsound_.data(), kFlagBytes, stream);
  if (with_residual) {
    ensure(next.residual, bytes_of_shape(shape));
    const bool has_residual = fits && !last.residual.is_empty();
    attempt.before = has_residual ? last.residual.floats() : nullptr;
    attempt.after = next.residual.floats();
    if (!has_residual) device_clear(next.residual.data(), next.residual.size(), stream);
  } else {
    next.residual = {};
  }
  if (basis_size > 0) {
    ensure(next.basis, basis_size * sizeof(float));
    ensure(next.has_basis, kFlagBytes);
    if (fits && last.basis.size() == next.basis.size()) {
      device_copy(last.basis.data(), next.basis.size(), next.basis.data(), stream);
      device_copy(last.has_basis.data(), kFlagBytes, next.has_basis.data(), stream);
    } else {
      device_clear(next.has_basis.data(), kFlagBytes, stream);
    }
    attempt.basis = next.basis.floats();
    attempt.has_basis = next.has_basis.flag();
  } else {
    next.basis = {};
    next.has_basis = {};
  }
  return attempt;
}

void DeviceFeedback::settle() {
  const Stream stream = codec_stream();
  const Values& last = newest();
  Values& next = attempted_;
  const bool fits = last.shape == next.shape;
  const bool has_residual = !next.residual.is_empty();
  // Without a residual a message is sound if its factors are.
  if (!has_residual && !next.basis.is_empty())
    device_tell_sound(next.has_basis.flag(), is_unsound_.flag(), stream);
  if (!fits && !last.is_empty() && !is_sound()) return;  // the old ones stay
  if (has_residual)
    device_settle(is_unsound_.flag(),
                  fits && !last.residual.is_empty() ? last.residual.floats() : nullptr,
                  next.residual.floats(), next.residual.size() / sizeof(float), stream);
  if (!next.basis.is_empty()) {
    const bool has_basis = fits && last.basis.size() == next.basis.size();
    device_settle(is_unsound_.flag(), has_basis ? last.basis.floats() : nullptr,
                  next.basis.floats(), next.basis.size() / sizeof(float), stream);
    device_settle(is_unsound_.flag(), has_basis ? last.has_basis.floats() : nullptr,
                  next.has_basis.floats(), 1, stream);
  }
  std::swap(open_, attempted_);
  is_open_ = true;
}

void DeviceFeedback::commit() {
  if (std::exchange(is_open_, false)) std::swap(committed_, open_);
}

void DeviceFeedback::abandon() {
  is_open_ = false;
}

void DeviceFeedback::drop_residual() {
  committed_.residual = {};
}

void DeviceFeedback::drop_basis() {
  committed_.basis = {};
  committed_.has_basis = {};
}

// Waits for the device.
bool DeviceFeedback::is_sound() const {
  return std::bit_cast<std::uint32_t>(downloaded(is_unsound_)[0]) == 0;
}

void DeviceFeedback::give_back(Feedback& host) const {
  std::vector<float> basis = downloaded(committed_.basis);
  const std::vector<float> has_basis = downloaded(committed_.has_basis);
  if (has_basis.empty() || std::bit_cast<std::uint32_t>(has_basis[0]) == 0) basis.clear();
  host.restore(committed_.shape, downloaded(committed_.residual), std::move(basis));
}

}  // namespace laconic
