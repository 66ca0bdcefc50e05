// Memory of a device that is the host's: of both that are none (emulated_device.cpp,
// late_device.cpp).
#include <sanitizer/asan_interface.h>

#include <cstring>

#include "tests/device/test_device.hpp"

namespace laconic::test {

void forbid(void* device, std::size_t bytes) {
  ASAN_POISON_MEMORY_REGION(device, bytes);
}

void allow(void* device, std::size_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(device, bytes);
}

void to_device(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

}  // namespace laconic::test
