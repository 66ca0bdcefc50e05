#include <cuda_runtime.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>

#include "tests/device/test_device.hpp"

namespace laconic::test {

namespace {

void require(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

// What tests allocate, free and copy has a stream of its own. cudaFree and the default stream would
// wait for all others, also for one that is held until somebody else has copied something.
cudaStream_t test_stream() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    require(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "a stream");
    return made;
  }();
  return stream;
}

}  // namespace

std::string no_device_reason() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return std::string("no GPU here: ") + cudaGetErrorString(error);
  return devices == 0 ? "no GPU here: CUDA finds none" : "";
}

// A callback of the stream sleeps until it is open; behind it comes a copy from pinned memory.
struct HeldStream::Body {
  void* device;
  std::size_t bytes;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = false;
  void* pinned = nullptr;
  cudaStream_t stream = nullptr;
};

HeldStream::HeldStream(void* device, std::size_t bytes) : body_(new Body{device, bytes}) {
  require(cudaStreamCreateWithFlags(&body_->stream, cudaStreamNonBlocking), "a stream");
  require(cudaHostAlloc(&body_->pinned, bytes + 1, cudaHostAllocDefault), "pinned memory");
}

HeldStream::~HeldStream() {
  cudaStreamSynchronize(body_->stream);
  cudaStreamDestroy(body_->stream);
  cudaFreeHost(body_->pinned);
}

Stream HeldStream::stream() const {
  return body_->stream;
}

void HeldStream::hold() {
  const auto wait = [](void* memory) {
    auto& body = *static_cast<Body*>(memory);
    std::unique_lock lock(body.mutex);
    body.changed.wait(lock, [&] { return body.is_open; });
  };
  require(cudaLaunchHostFunc(body_->stream, wait, body_.get()), "a callback");
  require(cudaMemcpyAsync(body_->device, body_->pinned, body_->bytes, cudaMemcpyHostToDevice,
                          body_->stream),
          "to the device");
}

void HeldStream::open(const void* host) {
  {
    const std::lock_guard lock(body_->mutex);
    if (body_->bytes > 0) std::memcpy(body_->pinned, host, body_->bytes);
    body_->is_open = true;
  }
  body_->changed.notify_all();
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
  require(cudaMallocAsync(&memory, bytes, test_stream()), "memory");
  require(cudaStreamSynchronize(test_stream()), "memory");
  return memory;
}

// Behind the codecs, which may still use it.
void device_free(void* memory) {
  if (memory == nullptr) return;
  cudaStreamSynchronize(static_cast<cudaStream_t>(codec_stream()));
  cudaFreeAsync(memory, test_stream());
}

void forbid(void*, std::size_t) {}
void allow(void*, std::size_t) {}

void to_device(void* device, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  require(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, test_stream()),
          "to the device");
  require(cudaStreamSynchronize(test_stream()), "to the device");
}

// Behind the codecs, but not behind a stream that is held.
void from_device(void* host, const void* device, std::size_t bytes) {
  require(cudaStreamSynchronize(static_cast<cudaStream_t>(codec_stream())), "a kernel");
  if (bytes == 0) return;
  require(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, test_stream()),
          "from the device");
  require(cudaStreamSynchronize(test_stream()), "from the device");
}

}  // namespace laconic::test
