#include "laconic/codec/device_memory.hpp"

#include <cuda_runtime.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/base/clock.hpp"
#include "laconic/base/gpu_error.hpp"
#include "laconic/codec/stream_progress.hpp"

namespace laconic {

namespace {

// What is told here must not seem to be the fault of the next kernel.
cudaError_t tried(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

void require(cudaError_t error, const char* what) {
  if (tried(error) != cudaSuccess)
    throw GpuError(std::string("CUDA refused ") + what + ": " + cudaGetErrorString(error),
                   error == cudaErrorMemoryAllocation);
}

cudaStream_t as_cuda(Stream stream) {
  return static_cast<cudaStream_t>(stream);
}

struct CodecStream {
  cudaStream_t stream = nullptr;
  int device = 0;  // the one that was current when the stream was first wanted
};

void* take_pinned(std::size_t bytes);
bool has_pinned(const void* memory) noexcept;
void give_pinned(void* memory, std::size_t bytes) noexcept;
constexpr BufferSource kPinnedSource{take_pinned, has_pinned, give_pinned};

// Never destroyed: the driver may be gone before static objects are.
CodecStream make_stream() {
  int least = 0, most = 0, device = 0;
  cudaStream_t stream = nullptr;
  require(cudaDeviceGetStreamPriorityRange(&least, &most), "a stream");
  require(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, most), "a stream");
  // Freed memory stays with the process: asking the driver each time takes too long.
  cudaMemPool_t pool = nullptr;
  require(cudaGetDevice(&device), "to name its device");
  require(cudaDeviceGetDefaultMemPool(&pool, device), "a memory pool");
  std::uint64_t keep = ~std::uint64_t{0};
  require(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "a memory pool");
  set_buffer_source(&kPinnedSource);
  return {stream, device};
}

struct EventPool {
  std::mutex mutex;
  std::vector<cudaEvent_t> free;
};

EventPool& event_pool() {
  static auto* pool = new EventPool;
  return *pool;
}

// Requires: the thread has its device.
std::shared_ptr<void> take_event() {
  EventPool& pool = event_pool();
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(pool.mutex);
    if (!pool.free.empty()) {
      event = pool.free.back();
      pool.free.pop_back();
    }
  }
  if (event == nullptr)
    require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
  return {event, [](void* e) {
            EventPool& all = event_pool();
            const std::lock_guard lock(all.mutex);
            all.free.push_back(static_cast<cudaEvent_t>(e));
          }};
}

// Work of another thread may be recorded as a CUDA graph; asking must not end that.
// Requires: the thread has its device.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

RoomPool& pinned_pool() {
  static auto* pool = new RoomPool;
  return *pool;
}

// Of all who take some, and never less: it is not given back to the system.
std::atomic<std::uint64_t> pinned_in_all = 0;

cudaError_t allocate_pinned(std::uint64_t room, std::byte** memory) {
  codec_stream();
  const RelaxedCapture relaxed;
  void* found = nullptr;
  const cudaError_t error = tried(cudaHostAlloc(&found, room, cudaHostAllocPortable));
  *memory = static_cast<std::byte*>(found);
  if (error == cudaSuccess) pinned_in_all += room;
  return error;
}

// Buffers that are larger than any message lie elsewhere, and so do those beyond so much pinned
// memory in all. CUDA may let who asks for it wait for the GPU, so where it has refused once, for
// whatever reason, nobody asks again.
constexpr std::uint64_t kMostPinned = std::uint64_t{32} << 20;
constexpr std::uint64_t kMostPinnedInAll = std::uint64_t{2} << 30;
std::atomic<bool> is_refused = false;

// What buffers have of it.
struct Lent {
  std::mutex mutex;
  std::unordered_set<const void*> memory;
};
Lent& lent() {
  static auto* to_buffers = new Lent;
  return *to_buffers;
}

std::byte* find_pinned(std::uint64_t room) {
  if (std::byte* const memory = pinned_pool().take(room)) return memory;
  if (is_refused || pinned_in_all + room > kMostPinnedInAll) return nullptr;
  std::byte* memory = nullptr;
  try {
    is_refused = allocate_pinned(room, &memory) != cudaSuccess;
  } catch (const std::exception&) {  // a thread that gets no device
    is_refused = true;
  }
  return memory;
}

void* take_pinned(std::size_t bytes) {
  std::byte* const memory = bytes > kMostPinned ? nullptr : find_pinned(pinned_room(bytes));
  if (memory == nullptr) return nullptr;
  const std::lock_guard lock(lent().mutex);
  lent().memory.insert(memory);
  return memory;
}

bool has_pinned(const void* memory) noexcept {
  const std::lock_guard lock(lent().mutex);
  return lent().memory.contains(memory);
}

// Where there is no memory to remember it by, it is lost.
void give_pinned(void* memory, std::size_t bytes) noexcept {
  try {
    {
      const std::lock_guard lock(lent().mutex);
      lent().memory.erase(memory);
    }
    pinned_pool().give(pinned_room(bytes), static_cast<std::byte*>(memory));
  } catch (const std::exception&) {
  }
}

// Pieces for messages. Whoever takes one queues its work behind that of whoever gave it.
RoomPool& device_pool() {
  static auto* pool = new RoomPool;
  return *pool;
}

cudaError_t allocate(std::uint64_t bytes, void** memory) {
  const cudaStream_t stream = as_cuda(codec_stream());
  const RelaxedCapture relaxed;
  const cudaError_t error = tried(cudaMallocAsync(memory, bytes, stream));
  if (error != cudaErrorMemoryAllocation) return error;
  for (std::byte* unused : device_pool().drain()) cudaFreeAsync(unused, stream);
  return tried(cudaMallocAsync(memory, bytes, stream));
}

StreamProgress& progress() {
  static auto* of_codec_stream = new StreamProgress;
  return *of_codec_stream;
}

double now() {
  static const Stopwatch watch;
  return watch.seconds();
}

void wait_for(cudaStream_t waiter, cudaStream_t other) {
  const std::shared_ptr<void> event = take_event();
  require(cudaEventRecord(static_cast<cudaEvent_t>(event.get()), other), "an event");
  require(cudaStreamWaitEvent(waiter, static_cast<cudaEvent_t>(event.get())), "to wait");
}

// A stream that is recorded as a graph would draw the codecs into it, and repeat this message for
// ever.
void require_not_recorded(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  require(cudaStreamIsCapturing(stream, &status), "to describe a stream");
  if (status != cudaStreamCaptureStatusNone)
    throw GpuError("a message cannot be packed while a CUDA graph is recorded");
}

}  // namespace

// Other threads begin with the first device, whichever the process has.
Stream codec_stream() {
  static const CodecStream codec = make_stream();
  thread_local const cudaError_t error = cudaSetDevice(codec.device);
  require(error, "its device to a thread");
  return codec.stream;
}

void enter_codec_stream(Stream other) {
  const cudaStream_t stream = as_cuda(codec_stream());
  require_not_recorded(as_cuda(other));
  wait_for(stream, as_cuda(other));
}

void leave_codec_stream(Stream other) {
  const cudaStream_t stream = as_cuda(codec_stream());
  wait_for(as_cuda(other), stream);
}

DeviceBuffer::DeviceBuffer(std::uint64_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const std::uint64_t room = device_room(bytes);
  if (room > 0) data_ = device_pool().take(room);
  if (data_ != nullptr) return;
  void* memory = nullptr;
  const cudaError_t error = allocate(room > 0 ? room : bytes, &memory);
  if (error != cudaSuccess)
    throw GpuError("Tried to get " + std::to_string(bytes) +
                       " bytes for messages: " + cudaGetErrorString(error) + ".",
                   error == cudaErrorMemoryAllocation);
  data_ = static_cast<std::byte*>(memory);
}

// Where even the device cannot be named any more, its memory is no loss.
void DeviceBuffer::release() noexcept {
  try {
    if (const std::uint64_t room = device_room(size_); room > 0) {
      device_pool().give(room, data_);
    } else {
      const cudaStream_t stream = as_cuda(codec_stream());
      const RelaxedCapture relaxed;
      cudaFreeAsync(data_, stream);
    }
  } catch (const std::exception&) {
  }
  data_ = nullptr;
  size_ = 0;
}

PinnedBuffer::PinnedBuffer(std::uint64_t bytes) : size_(bytes), room_(pinned_room(bytes)) {
  data_ = pinned_pool().take(room_);
  if (data_ != nullptr) return;
  require(allocate_pinned(room_, &data_), "pinned memory");
}

PinnedBuffer::~PinnedBuffer() {
  pinned_pool().give(room_, data_);
}

DeviceEvent::DeviceEvent() {
  const cudaStream_t stream = as_cuda(codec_stream());
  event_ = take_event();
  number_ = progress().count([&] {
    require(cudaEventRecord(static_cast<cudaEvent_t>(event_.get()), stream), "an event");
  });
}

DeviceEvent::DeviceEvent(Stream stream) {
  if (codec_stream() == stream) {
    *this = DeviceEvent();
    return;
  }
  require_not_recorded(as_cuda(stream));
  event_ = take_event();
  require(cudaEventRecord(static_cast<cudaEvent_t>(event_.get()), as_cuda(stream)), "an event");
}

bool DeviceEvent::is_done() const {
  const bool is_counted = number_ > 0;
  if (is_counted && progress().is_reached(number_)) return true;
  if (is_counted && progress().is_known_to_wait(number_, now())) return false;
  codec_stream();
  const RelaxedCapture relaxed;
  const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event_.get()));
  if (error != cudaErrorNotReady) require(error, "work for a message");
  const bool is_done = error == cudaSuccess;
  if (is_counted) progress().learn(number_, is_done, now());
  return is_done;
}

void copy_to_host(const std::byte* device, std::uint64_t bytes, std::byte* host) {
  if (bytes > 0)
    require(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, as_cuda(codec_stream())),
            "a copy to the host");
}

void copy_to_device(const std::byte* host, std::uint64_t bytes, std::byte* device) {
  if (bytes > 0)
    require(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, as_cuda(codec_stream())),
            "a copy to the device");
}

}  // namespace laconic
