#include "laconic/base/bytes.hpp"

#include <atomic>

template class std::vector<std::byte, laconic::UninitialisedAllocator<std::byte>>;
template class std::vector<float, laconic::UninitialisedAllocator<float>>;

namespace laconic {

namespace {

std::atomic<const BufferSource*> buffer_source = nullptr;

// The source of such a buffer; null: it lies where all else does. The buffer may be older than the
// source.
const BufferSource* source_of(const std::byte* bytes, std::size_t count) {
  const BufferSource* const source = count < kLargeBuffer ? nullptr : buffer_source.load();
  return source != nullptr && source->has(bytes) ? source : nullptr;
}

}  // namespace

void set_buffer_source(const BufferSource* source) {
  buffer_source = source;
}

std::byte* allocate_bytes(std::size_t count) {
  const BufferSource* const source = count < kLargeBuffer ? nullptr : buffer_source.load();
  void* const memory = source == nullptr ? nullptr : source->take(count);
  return memory != nullptr ? static_cast<std::byte*>(memory)
                           : std::allocator<std::byte>().allocate(count);
}

void free_bytes(std::byte* bytes, std::size_t count) noexcept {
  if (const BufferSource* const source = source_of(bytes, count))
    source->give(bytes, count);
  else
    std::allocator<std::byte>().deallocate(bytes, count);
}

bool is_from_source(const Bytes& bytes) {
  return source_of(bytes.data(), bytes.capacity()) != nullptr;
}

}  // namespace laconic
