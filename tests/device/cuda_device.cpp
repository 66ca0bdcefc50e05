#include <cuda_runtime.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/device/test_device.hpp"

namespace laconic::test {

namespace {

void require(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

}  // namespace

const char* no_device_reason() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return devices == 0 ? "there is no GPU" : nullptr;
}

int device_cases() {
  const char* cases = std::getenv("LACONIC_DEVICE_CASES");
  return cases == nullptr ? 10000 : std::atoi(cases);
}

std::size_t device_elements() {
  return 60000;
}

void* device_allocate(std::size_t bytes) {
  void* memory = nullptr;
  require(cudaMalloc(&memory, bytes), "cudaMalloc");
  return memory;
}

void device_free(void* memory) {
  cudaFree(memory);
}

// A small copy may return before the bytes are there, and the codec stream does not wait for it.
void to_device(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) require(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "to the device");
  require(cudaDeviceSynchronize(), "to the device");
}

void from_device(void* host, const void* device, std::size_t bytes) {
  require(cudaDeviceSynchronize(), "a kernel");
  if (bytes > 0)
    require(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "from the device");
}

}  // namespace laconic::test
