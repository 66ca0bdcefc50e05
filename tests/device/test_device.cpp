#include "tests/device/test_device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace laconic::test {

namespace {
constexpr std::size_t kGuard = 256;
constexpr std::byte kRubbish{0xA5};
}  // namespace

TestBuffer::TestBuffer(std::size_t bytes, std::size_t offset)
    : bytes_(bytes),
      offset_(offset),
      memory_(static_cast<std::byte*>(device_allocate(bytes + offset + 2 * kGuard))),
      data_(memory_ + kGuard + offset) {
  const std::vector<std::byte> rubbish(bytes + offset + 2 * kGuard, kRubbish);
  to_device(memory_, rubbish.data(), rubbish.size());
  forbid(memory_, kGuard);
  forbid(memory_ + kGuard + offset + bytes, kGuard);
}

TestBuffer::~TestBuffer() {
  std::vector<std::byte> all(bytes_ + offset_ + 2 * kGuard);
  allow(memory_, all.size());
  from_device(all.data(), memory_, all.size());
  const auto is_intact = [&](std::size_t begin, std::size_t end) {
    return std::all_of(all.begin() + static_cast<std::ptrdiff_t>(begin),
                       all.begin() + static_cast<std::ptrdiff_t>(end),
                       [](std::byte b) { return b == kRubbish; });
  };
  EXPECT_TRUE(is_intact(0, kGuard + offset_)) << "written before a buffer of " << bytes_;
  EXPECT_TRUE(is_intact(kGuard + offset_ + bytes_, all.size()))
      << "written behind a buffer of " << bytes_;
  device_free(memory_);
}

}  // namespace laconic::test
