#include "laconic/base/bytes.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <numeric>

namespace laconic {
namespace {

// One that counts what it has given away.
std::map<void*, std::size_t> taken;
std::size_t most_bytes = 0;

void* take(std::size_t bytes) {
  if (bytes > most_bytes) return nullptr;
  void* const memory = std::malloc(bytes);
  taken.emplace(memory, bytes);
  return memory;
}

bool has(const void* memory) noexcept {
  return taken.contains(const_cast<void*>(memory));
}

void give(void* memory, std::size_t bytes) noexcept {
  const auto found = taken.find(memory);
  EXPECT_TRUE(found != taken.end() && found->second == bytes) << bytes;
  if (found != taken.end()) taken.erase(found);
  std::free(memory);
}

constexpr BufferSource kSource{take, has, give};

class Buffers : public testing::Test {
 protected:
  void SetUp() override { most_bytes = std::size_t{1} << 20; }
  void TearDown() override {
    set_buffer_source(nullptr);
    EXPECT_TRUE(taken.empty());
  }
};

Bytes counted(std::size_t count) {
  Bytes bytes;
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(i));
  return bytes;
}

TEST_F(Buffers, LargeOnesComeFromTheSourceAndGoBackToIt) {
  set_buffer_source(&kSource);
  for (const std::size_t count : {kLargeBuffer - 1, kLargeBuffer, 3 * kLargeBuffer + 7}) {
    Bytes bytes(count);
    EXPECT_EQ(is_from_source(bytes), count >= kLargeBuffer) << count;
    EXPECT_EQ(taken.size(), count >= kLargeBuffer ? 1U : 0U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % 16, 0U);
    const Bytes moved = std::move(bytes);
    EXPECT_EQ(is_from_source(moved), count >= kLargeBuffer);
  }
  EXPECT_FALSE(is_from_source(Bytes()));
}

TEST_F(Buffers, GrowWithWhatIsInThem) {
  const Bytes expected = counted(10 * kLargeBuffer);
  set_buffer_source(&kSource);
  const Bytes bytes = counted(10 * kLargeBuffer);
  EXPECT_TRUE(is_from_source(bytes));
  EXPECT_FALSE(is_from_source(expected));
  EXPECT_EQ(bytes, expected);
  const Bytes copy = expected;
  EXPECT_TRUE(is_from_source(copy));
  EXPECT_EQ(copy, expected);
}

// The source may be set while buffers live, and may have nothing to give.
TEST_F(Buffers, GoBackWhereTheyCameFrom) {
  auto before = std::make_unique<Bytes>(kLargeBuffer);
  set_buffer_source(&kSource);
  const Bytes refused(2 * most_bytes);
  EXPECT_FALSE(is_from_source(*before));
  EXPECT_FALSE(is_from_source(refused));
  auto within = std::make_unique<Bytes>(kLargeBuffer);
  EXPECT_TRUE(is_from_source(*within));
  before = nullptr;
  EXPECT_EQ(taken.size(), 1U);
  within = nullptr;
  EXPECT_TRUE(taken.empty());
}

}  // namespace
}  // namespace laconic
