// tests/device/late_device.hpp — a GPU that does its work late, for codec/kernel/device_memory.cpp
// as it is.
//
// Streams are queues. A little of what is queued, in the order of each stream and at random among
// them, is done whenever somebody asks an event; copies and emulated kernels alike, and memory is
// read and written only then. So whoever uses memory before its time, or gives it to others too
// early, gets other numbers than the host, and asan sees what was freed.
#pragma once

#include <cstdint>

namespace laconic::test {

// What CUDA refuses from here on, until it is set to something else.
struct LateRefusals {
  int records = 0;                               // so many events are not recorded
  std::uint64_t more_bytes = ~std::uint64_t{0};  // of the device, beyond what is taken now
};
void refuse(const LateRefusals& refusals);

// Pieces of work that are queued; what was recorded last has no error.
std::uint64_t queued_work();
bool is_without_error();
// While it lives nothing is done.
class HeldDevice {
 public:
  HeldDevice();
  ~HeldDevice();
  HeldDevice(const HeldDevice&) = delete;
  HeldDevice& operator=(const HeldDevice&) = delete;
};

}  // namespace laconic::test
