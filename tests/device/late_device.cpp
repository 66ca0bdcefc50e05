#include "tests/device/late_device.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "laconic/codec/device_memory.hpp"
#include "laconic/codec/kernel/emulator.hpp"
#include "tests/device/late/cuda_runtime.h"
#include "tests/device/test_device.hpp"

// Work returns false when it cannot be done yet.
struct LateStream {
  std::deque<std::function<bool()>> work;
};

// Recorded anew it is another point; who waits for the old one still does.
struct LateEvent {
  std::shared_ptr<bool> is_reached = std::make_shared<bool>(true);
};

namespace laconic {

namespace {

struct Device {
  std::recursive_mutex mutex;
  std::vector<std::unique_ptr<LateStream>> streams;
  std::map<const std::byte*, std::size_t> pinned, memory;
  std::uint64_t taken = 0, most = ~std::uint64_t{0};  // of the device's memory
  std::mt19937 chance{1};
  bool is_held = false;
  test::LateRefusals refusals;
};

Device& device() {
  static auto* one = new Device;
  return *one;
}

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t failed(cudaError_t error) {
  return last_error = error;
}

void queue(LateStream* stream, std::function<bool()> work) {
  const std::lock_guard lock(device().mutex);
  stream->work.push_back(std::move(work));
}

template <class Act>
void queue_act(LateStream* stream, Act act) {
  queue(stream, [act = std::move(act)] {
    act();
    return true;
  });
}

// False: there is none that can be done. Requires: the mutex is locked, as below.
bool do_one(LateStream& stream) {
  if (stream.work.empty() || !stream.work.front()()) return false;
  stream.work.pop_front();
  return true;
}

void do_some() {
  Device& gpu = device();
  if (gpu.is_held) return;
  for (std::uint32_t left = 1 + gpu.chance() % 12; left > 0; --left)
    do_one(*gpu.streams[gpu.chance() % gpu.streams.size()]);
}

// Others are asked, too: it may wait for them.
void finish(LateStream* stream) {
  for (;;) {
    {
      const std::lock_guard lock(device().mutex);
      if (stream->work.empty()) return;
      if (!device().is_held)
        for (const auto& any : device().streams) do_one(*any);
      if (stream->work.empty()) return;
    }
    std::this_thread::yield();
  }
}

LateStream* add_stream() {
  const std::lock_guard lock(device().mutex);
  return device().streams.emplace_back(std::make_unique<LateStream>()).get();
}

bool is_pinned(const void* at, std::size_t bytes) {
  const auto& pinned = device().pinned;
  const auto* const begin = static_cast<const std::byte*>(at);
  auto behind = pinned.upper_bound(begin);
  if (behind == pinned.begin()) return false;
  const auto& [from, size] = *--behind;
  return begin + bytes <= from + size;
}

// No more than was asked for, so that asan sees who reads beyond it; but a GPU has whole sixteens.
void* take_memory(std::size_t bytes) {
  void* memory = nullptr;
  return ::posix_memalign(&memory, 256, (bytes + 15) / 16 * 16) == 0 ? memory : nullptr;
}

void queue_kernel(kernel::Stream stream, std::function<void()> kernel) {
  queue_act(static_cast<LateStream*>(stream), std::move(kernel));
}

[[maybe_unused]] const bool is_late = (kernel::emulator::start = queue_kernel, true);

}  // namespace

}  // namespace laconic

// --- CUDA

using namespace laconic;

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "refused by the test";
}

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaGetDevice(int* number) {
  *number = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* most) {
  *least = *most = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = add_stream();
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event) {
  const std::lock_guard lock(device().mutex);
  queue(stream, [point = event->is_reached] { return *point; });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new LateEvent;  // kept by the pool of events
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(device().mutex);
  if (device().refusals.records > 0) {
    --device().refusals.records;
    return failed(cudaErrorUnknown);
  }
  event->is_reached = std::make_shared<bool>(false);
  queue_act(stream, [point = event->is_reached] { *point = true; });
  return cudaSuccess;
}

// What is not ready is an answer, not an error that the next one would be told.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(device().mutex);
  do_some();
  return *event->is_reached ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t stream) {
  Device& gpu = device();
  const std::lock_guard lock(gpu.mutex);
  if (gpu.taken + bytes > gpu.most) return failed(cudaErrorMemoryAllocation);
  gpu.taken += bytes;
  *memory = take_memory(bytes);
  gpu.memory.emplace(static_cast<std::byte*>(*memory), bytes);
  queue_act(stream, [at = *memory, bytes] { std::memset(at, 0xFF, bytes); });  // no number at all
  return cudaSuccess;
}

// In the order of the stream, in which others may take what becomes free.
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  Device& gpu = device();
  const std::lock_guard lock(gpu.mutex);
  const auto found = gpu.memory.find(static_cast<std::byte*>(memory));
  if (found == gpu.memory.end()) return failed(cudaErrorUnknown);
  gpu.taken -= found->second;
  gpu.memory.erase(found);
  queue_act(stream, [memory] { std::free(memory); });
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  const std::lock_guard lock(device().mutex);
  *memory = take_memory(bytes);
  std::memset(*memory, 0xFF, bytes);
  device().pinned.emplace(static_cast<std::byte*>(*memory), bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  bool is_late = false;
  {
    const std::lock_guard lock(device().mutex);
    queue_act(stream, [=] { std::memcpy(to, from, bytes); });
    is_late = is_pinned(kind == cudaMemcpyHostToDevice ? from : to, bytes);
  }
  if (!is_late) finish(stream);
  return cudaSuccess;
}

// --- tests

namespace laconic::test {

void refuse(const LateRefusals& refusals) {
  const std::lock_guard lock(device().mutex);
  Device& gpu = device();
  gpu.refusals = refusals;
  gpu.most = refusals.more_bytes > ~gpu.taken ? ~std::uint64_t{0} : gpu.taken + refusals.more_bytes;
}

std::uint64_t queued_work() {
  const std::lock_guard lock(device().mutex);
  std::uint64_t queued = 0;
  for (const auto& stream : device().streams) queued += stream->work.size();
  return queued;
}

bool is_without_error() {
  return last_error == cudaSuccess;
}

HeldDevice::HeldDevice() {
  const std::lock_guard lock(device().mutex);
  device().is_held = true;
}

HeldDevice::~HeldDevice() {
  const std::lock_guard lock(device().mutex);
  device().is_held = false;
}

std::string no_device_reason() {
  return "";
}

int device_cases() {
  return 100;
}

std::size_t device_elements() {
  return 3000;
}

struct HeldStream::Body {
  std::byte* device;
  std::vector<std::byte> bytes;
  bool is_open = false;
  LateStream* stream = add_stream();
};

HeldStream::HeldStream(void* device, std::size_t bytes)
    : body_(new Body{static_cast<std::byte*>(device), std::vector<std::byte>(bytes)}) {}

HeldStream::~HeldStream() {
  finish(body_->stream);
  const std::lock_guard lock(device().mutex);
  std::erase_if(device().streams, [&](const auto& any) { return any.get() == body_->stream; });
}

Stream HeldStream::stream() const {
  return body_->stream;
}

void HeldStream::hold() {
  Body& body = *body_;
  queue(body.stream, [&body] { return body.is_open; });
  queue_act(body.stream, [&body] { std::ranges::copy(body.bytes, body.device); });
}

void HeldStream::open(const void* host) {
  const std::lock_guard lock(device().mutex);
  if (!body_->bytes.empty()) std::memcpy(body_->bytes.data(), host, body_->bytes.size());
  body_->is_open = true;
}

void* device_allocate(std::size_t bytes) {
  return take_memory(bytes);
}

// Behind the codecs, which may still use it; not behind a stream that is held.
void device_free(void* memory) {
  if (memory != nullptr) finish(static_cast<LateStream*>(codec_stream()));
  std::free(memory);
}

void from_device(void* host, const void* device, std::size_t bytes) {
  finish(static_cast<LateStream*>(codec_stream()));
  if (bytes > 0) std::memcpy(host, device, bytes);
}

}  // namespace laconic::test
