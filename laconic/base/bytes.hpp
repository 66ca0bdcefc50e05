// base/bytes.hpp — byte buffers and little-endian integers.
//
// Every file and wire format of Laconic is little-endian. put() and get() go
// through memcpy, so alignment never matters; the host must be little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace laconic {

static_assert(std::endian::native == std::endian::little,
              "formats are written as memory holds them");

// Where large buffers of bytes lie, if not where all else does. A device copies by itself to and
// from memory that is pinned, so who computes on one lets messages lie there
// (codec/device_memory.hpp). Any thread may call them.
struct BufferSource {
  void* (*take)(std::size_t bytes);  // null: they lie where all else does
  bool (*has)(const void* memory) noexcept;
  void (*give)(void* memory, std::size_t bytes) noexcept;  // Requires: has(memory)
};
// From here on, for as long as any buffer of it lives; those that are there stay where they are.
void set_buffer_source(const BufferSource* source);
// Smaller ones never come from it.
inline constexpr std::size_t kLargeBuffer = std::size_t{4} << 10;

std::byte* allocate_bytes(std::size_t count);
void free_bytes(std::byte* bytes, std::size_t count) noexcept;

// resize() and Scratch(n) leave new elements as they are instead of setting them to zero: a buffer
// of megabytes is about to be filled anyway.
template <class T>
struct UninitialisedAllocator : std::allocator<T> {
  template <class U>
  struct rebind {  // NOLINT(readability-identifier-naming): what the standard calls it
    using other = UninitialisedAllocator<U>;
  };
  UninitialisedAllocator() = default;
  template <class U>
  UninitialisedAllocator(const UninitialisedAllocator<U>&) {}
  T* allocate(std::size_t count) {
    if constexpr (std::is_same_v<T, std::byte>)
      return allocate_bytes(count);
    else
      return std::allocator<T>::allocate(count);
  }
  void deallocate(T* at, std::size_t count) noexcept {
    if constexpr (std::is_same_v<T, std::byte>)
      free_bytes(at, count);
    else
      std::allocator<T>::deallocate(at, count);
  }
  template <class U, class... Arguments>
  void construct(U* at, Arguments&&... arguments) {
    if constexpr (sizeof...(Arguments) == 0)
      ::new (static_cast<void*>(at)) U;
    else
      ::new (static_cast<void*>(at)) U(std::forward<Arguments>(arguments)...);
  }
};

template <class T>
using Scratch = std::vector<T, UninitialisedAllocator<T>>;

using Bytes = Scratch<std::byte>;
using ByteView = std::span<const std::byte>;
using SharedBytes = std::shared_ptr<const Bytes>;  // which nobody changes any more

// Whether they lie in memory of the source.
bool is_from_source(const Bytes& bytes);

}  // namespace laconic

// Compiled once, in bytes.cpp, with optimisation: without it (in folders that are COLD) GCC walks
// over every byte of a buffer to destroy it: a millisecond for four megabytes.
extern template class std::vector<std::byte, laconic::UninitialisedAllocator<std::byte>>;
extern template class std::vector<float, laconic::UninitialisedAllocator<float>>;

namespace laconic {

template <class T>
ByteView as_bytes(std::span<const T> values) {
  return std::as_bytes(values);
}

template <class T>
void put(Bytes& out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* raw = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), raw, raw + sizeof value);
}

// Requires: offset + sizeof(T) <= in.size().
template <class T>
T get(ByteView in, std::size_t offset) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, in.data() + offset, sizeof value);
  return value;
}

}  // namespace laconic
