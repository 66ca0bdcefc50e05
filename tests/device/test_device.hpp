// tests/device/test_device.hpp — memory of a device, for tests that run on a GPU and on the
// emulator.
#pragma once

#include <cstddef>
#include <memory>

namespace laconic::test {

// Why the tests cannot run here; null if they can.
const char* no_device_reason();
// How many random cases are worth the time.
int device_cases();
// The largest tensors of random cases.
std::size_t device_elements();

void* device_allocate(std::size_t bytes);
void device_free(void* memory);
void to_device(void* device, const void* host, std::size_t bytes);
void from_device(void* host, const void* device, std::size_t bytes);  // after all work

// Memory of a device, filled with rubbish, with guards around it that the destructor looks at.
class TestBuffer {
 public:
  explicit TestBuffer(std::size_t bytes, std::size_t offset = 0);
  ~TestBuffer();
  TestBuffer(const TestBuffer&) = delete;
  TestBuffer& operator=(const TestBuffer&) = delete;
  template <class T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  std::size_t bytes_, offset_;
  std::byte* memory_;
  void* data_;
};

}  // namespace laconic::test
