#include "laconic/rendezvous/slot_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace laconic {
namespace {

std::size_t page_size() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Pages that the kernel has given to the memory.
std::size_t resident_pages(const SlotMemory& memory) {
  std::vector<unsigned char> pages((memory.size() + page_size() - 1) / page_size());
  if (::mincore(memory.data(), memory.size(), pages.data()) != 0)
    throw std::runtime_error("mincore failed");
  return static_cast<std::size_t>(
      std::ranges::count_if(pages, [](unsigned char state) { return (state & 1U) != 0; }));
}

TEST(SlotMemory, CountsOnlyWhereSomethingWasWritten) {
  const SlotMemory memory(std::size_t{16} << 20);
  EXPECT_EQ(resident_pages(memory), 0u);
  for (std::size_t at = 0; at < memory.size(); at += 1 << 20) memory.data()[at] = std::byte{1};
  EXPECT_EQ(resident_pages(memory), 16u);
}

TEST(SlotMemory, ForgetsWholePagesAndKeepsWhatLiesBeside) {
  SlotMemory memory(8 * page_size());
  std::memset(memory.data(), 7, memory.size());
  EXPECT_EQ(resident_pages(memory), 8u);
  memory.forget(page_size() + 1, 4 * page_size());  // touches pages 1 to 5, holds 2 to 4
  EXPECT_EQ(resident_pages(memory), 5u);
  EXPECT_EQ(memory.data()[2 * page_size() - 1], std::byte{7});
  EXPECT_EQ(memory.data()[2 * page_size()], std::byte{0});
  EXPECT_EQ(memory.data()[5 * page_size()], std::byte{7});
  memory.forget(1, page_size());  // holds none
  EXPECT_EQ(memory.data()[1], std::byte{7});
}

}  // namespace
}  // namespace laconic
