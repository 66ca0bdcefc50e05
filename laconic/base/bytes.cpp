#include "laconic/base/bytes.hpp"

#include <atomic>

template class std::vector<std::byte, laconic::UninitialisedAllocator<std::byte>>;
template class std::vector<float, laconic::UninitialisedAllocator<float>>;

namespace laconic {

namespace {

// In front of every large buffer, since the source may have been set between taking and giving. No
// larger than any allocation is aligned, so that plain memory needs no other: an aligned one would
// write behind its end, and touch pages that nobody uses yet.
struct alignas(__STDCPP_DEFAULT_NEW_ALIGNMENT__) Head {
  const BufferSource* source;  // null: operator new
};

std::atomic<const BufferSource*> buffer_source = nullptr;

const Head& head_of(const std::byte* bytes) {
  return *reinterpret_cast<const Head*>(bytes - sizeof(Head));
}

}  // namespace

void set_buffer_source(const BufferSource* source) {
  buffer_source = source;
}

std::byte* allocate_bytes(std::size_t count) {
  if (count < kLargeBuffer) return std::allocator<std::byte>().allocate(count);
  const std::size_t room = sizeof(Head) + count;
  const BufferSource* source = buffer_source;
  void* memory = source == nullptr ? nullptr : source->take(room);
  if (memory == nullptr) {
    source = nullptr;
    memory = ::operator new(room);
  }
  ::new (memory) Head{source};
  return static_cast<std::byte*>(memory) + sizeof(Head);
}

void free_bytes(std::byte* bytes, std::size_t count) noexcept {
  if (count < kLargeBuffer) return std::allocator<std::byte>().deallocate(bytes, count);
  std::byte* const memory = bytes - sizeof(Head);
  if (const BufferSource* source = head_of(bytes).source)
    source->give(memory, sizeof(Head) + count);
  else
    ::operator delete(memory);
}

bool is_from_source(const Bytes& bytes) {
  return bytes.capacity() >= kLargeBuffer && head_of(bytes.data()).source != nullptr;
}

}  // namespace laconic
