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
