#include "laconic/codec/device_floats.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace laconic {

namespace {

// Pinned memory is never given back, so a checkpoint should not want a model's worth of it.
constexpr std::size_t kPiece = std::size_t{16} << 20;

// act(pinned memory, offset, bytes) for pieces of so many bytes.
template <class Act>
void for_each_piece(std::size_t bytes, const Act& act) {
  if (bytes == 0) return;
  auto pinned = std::make_unique<PinnedBuffer>(std::min(bytes, kPiece));
  try {
    for (std::size_t at = 0; at < bytes; at += kPiece)
      act(pinned->data(), at, std::min(kPiece, bytes - at));
  } catch (...) {
    lose(std::move(pinned));
    throw;
  }
}

}  // namespace

void upload(std::span<const std::byte> bytes, std::byte* device) {
  for_each_piece(bytes.size(), [&](std::byte* pinned, std::size_t at, std::size_t piece) {
    std::memcpy(pinned, bytes.data() + at, piece);
    copy_to_device(pinned, piece, device + at);
    DeviceEvent().wait();
  });
}

void upload(std::span<const float> values, float* device) {
  upload(std::as_bytes(values), reinterpret_cast<std::byte*>(device));
}

DeviceBuffer uploaded(std::span<const float> values) {
  DeviceBuffer buffer(values.size_bytes());
  upload(values, buffer.floats());
  return buffer;
}

void download(const float* device, std::span<float> values) {
  const std::span<std::byte> bytes = std::as_writable_bytes(values);
  for_each_piece(bytes.size(), [&](std::byte* pinned, std::size_t at, std::size_t piece) {
    copy_to_host(reinterpret_cast<const std::byte*>(device) + at, piece, pinned);
    DeviceEvent().wait();
    std::memcpy(bytes.data() + at, pinned, piece);
  });
}

std::vector<float> downloaded(const DeviceBuffer& buffer) {
  std::vector<float> values(buffer.size() / sizeof(float));
  download(buffer.floats(), values);
  return values;
}

}  // namespace laconic
