#include "laconic/rendezvous/slot_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace laconic {
namespace {

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

SlotMemory::SlotMemory(std::size_t bytes) : size_(bytes) {
  void* const place = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(place);
  // Without effect, and without harm, where the kernel has no large pages.
  (void)::madvise(data_, size_, MADV_NOHUGEPAGE);
}

SlotMemory::~SlotMemory() {
  ::munmap(data_, size_);
}

void SlotMemory::forget(std::size_t offset, std::size_t bytes) {
  const std::size_t page = page_bytes();
  const std::size_t begin = (offset + page - 1) / page * page, end = (offset + bytes) / page * page;
  // Should the kernel refuse, the pages stay: nothing is lost but memory.
  if (begin < end) (void)::madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace laconic
