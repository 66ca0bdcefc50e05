// tensor/test_alive.hpp — for tests: how many bytes of tensors on the host are alive.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace laconic {

// Allocates for libtorch while it exists; tensors may outlive it. At most one at a time.
class AliveBytes {
 public:
  AliveBytes() { c10::SetCPUAllocator(&allocator(), kPriority); }
  ~AliveBytes() { c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), kPriority); }
  AliveBytes(const AliveBytes&) = delete;
  AliveBytes& operator=(const AliveBytes&) = delete;

  // Bytes that were allocated through it and not freed yet.
  static std::size_t now() { return counter().load(); }
  // The most that there were at once since the last call.
  static std::size_t take_peak() { return peak().exchange(now()); }

 private:
  static constexpr std::uint8_t kPriority = 255;
  static constexpr std::size_t kAlignment = 64;

  static std::atomic<std::size_t>& counter() {
    static std::atomic<std::size_t> bytes = 0;
    return bytes;
  }

  static std::atomic<std::size_t>& peak() {
    static std::atomic<std::size_t> bytes = 0;
    return bytes;
  }
  static void raise_peak(std::size_t bytes) {
    std::size_t before = peak().load();
    while (before < bytes && !peak().compare_exchange_weak(before, bytes)) {
    }
  }

  // The size stands before what is handed out.
  static c10::DataPtr take(std::size_t bytes) {
    const std::size_t all = (bytes + 2 * kAlignment - 1) / kAlignment * kAlignment;
    auto* begin = static_cast<std::byte*>(std::aligned_alloc(kAlignment, all));
    if (begin == nullptr) throw std::bad_alloc();
    std::memcpy(begin, &bytes, sizeof bytes);
    raise_peak(counter() += bytes);
    std::byte* data = begin + kAlignment;
    return {data, data, &give, c10::Device(c10::kCPU)};
  }
  static void give(void* data) {
    if (data == nullptr) return;
    std::byte* begin = static_cast<std::byte*>(data) - kAlignment;
    std::size_t bytes = 0;
    std::memcpy(&bytes, begin, sizeof bytes);
    counter() -= bytes;
    std::free(begin);
  }

  // Whichever of these a version of libtorch declares is overridden.
  struct Allocator final : c10::Allocator {
    c10::DataPtr allocate(std::size_t bytes) const { return take(bytes); }
    c10::DataPtr allocate(std::size_t bytes) { return take(bytes); }
    c10::DeleterFnPtr raw_deleter() const { return &give; }
    void copy_data(void* to, const void* from, std::size_t bytes) const {
      std::memcpy(to, from, bytes);
    }
  };
  static Allocator& allocator() {
    static Allocator only;
    return only;
  }
};

}  // namespace laconic
