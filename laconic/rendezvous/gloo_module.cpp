#include <gloo/allreduce.h>
#include <gloo/context.h>
#include <gloo/math.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "laconic/rendezvous/gloo_engine.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

// gloo waits five times its time-out for a connection.
constexpr int kGlooPatience = 5;
// gloo adds it to a clock that counts nanoseconds, so it cannot be much longer.
constexpr milliseconds kForever = std::chrono::hours(24 * 365 * 10);

// What an exception says, and empty when there is none.
template <class Act>
std::string complaint_of(const Act& act) {
  try {
    act();
    return {};
  } catch (const std::exception& error) {
    return *error.what() == '\0' ? "gloo failed and does not say why" : error.what();
  } catch (...) {
    return "gloo failed and does not say why";
  }
}

// Sends and receives begin in gloo's own thread, the one that waits for all sockets. Of a pair that
// another thread is using this one would not wait for the lock, but ask the kernel for events again
// at once, and again, for as long as that thread writes or is not running: with four ranks on two
// cores it asked half a million times a second, a seventh of both cores.
class Errands final : public gloo::transport::tcp::Handler {
 public:
  using Device = gloo::transport::tcp::Device;
  using Errand = std::function<void()>;  // throws nothing

  explicit Errands(std::shared_ptr<Device> device)
      : device_(std::move(device)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (bell_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    device_->registerDescriptor(bell_, EPOLLIN, this);
  }
  ~Errands() override {
    device_->unregisterDescriptor(bell_, this);
    ::close(bell_);
  }
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  Device& device() { return *device_; }
  const std::shared_ptr<Device>& shared_device() const { return device_; }

  // They begin in the order in which they were posted.
  void post(Errand errand) {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(errand));
    if (posted_.size() == 1) ::eventfd_write(bell_, 1);
  }

  void handleEvents(int /*events*/) override {
    eventfd_t rings = 0;
    ::eventfd_read(bell_, &rings);
    std::vector<Errand> errands;
    {
      const std::lock_guard lock(mutex_);
      errands.swap(posted_);
    }
    for (const Errand& errand : errands) errand();
  }

 private:
  const std::shared_ptr<Device> device_;
  const int bell_;
  std::mutex mutex_;
  std::vector<Errand> posted_;
};

// What errands of one mesh may still touch.
struct InUse {
  std::mutex mutex;  // held by an errand while it has to do with gloo
  std::vector<bool> has_pair;
};

// One way of a buffer, whose errands fail later than they were asked for.
class Way {
 public:
  std::string error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  void fail(std::string why) {
    const std::lock_guard lock(mutex_);
    if (error_.empty()) error_ = std::move(why);
  }

 private:
  mutable std::mutex mutex_;
  std::string error_;
};

struct BufferState {
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;  // null when the Buffer has gone
  Way sends, receives;
};

class Buffer final : public GlooBuffer {
 public:
  Buffer(std::shared_ptr<Errands> errands, std::shared_ptr<InUse> in_use,
         std::unique_ptr<gloo::transport::UnboundBuffer> buffer)
      : errands_(std::move(errands)),
        in_use_(std::move(in_use)),
        state_(std::make_shared<BufferState>()) {
    state_->buffer = std::move(buffer);
  }
  ~Buffer() override {
    const std::lock_guard lock(in_use_->mutex);
    state_->buffer.reset();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::string send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    if (std::string why = refusal(state_->sends, offset, bytes); !why.empty()) return why;
    post(to, [=](BufferState& state) {
      std::string why = complaint_of([&] { state.buffer->send(to, slot, offset, bytes); });
      if (why.empty()) return;
      state.sends.fail(std::move(why));
      complaint_of([&] { state.buffer->abortWaitSend(); });
    });
    return {};
  }
  std::string recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    if (std::string why = refusal(state_->receives, offset, bytes); !why.empty()) return why;
    post(from, [=](BufferState& state) {
      std::string why = complaint_of([&] { state.buffer->recv(from, slot, offset, bytes); });
      if (why.empty()) return;
      state.receives.fail(std::move(why));
      complaint_of([&] { state.buffer->abortWaitRecv(); });
    });
    return {};
  }
  GlooWait wait_send(std::string& error) override {
    return wait(error, state_->sends, [&] { return state_->buffer->waitSend(kForever); });
  }
  GlooWait wait_recv(std::string& error) override {
    return wait(error, state_->receives, [&] { return state_->buffer->waitRecv(kForever); });
  }
  // Nobody can do anything about an abort that fails: whoever waits has a deadline of his own.
  void abort_wait_send() override {
    complaint_of([&] { state_->buffer->abortWaitSend(); });
  }
  void abort_wait_recv() override {
    complaint_of([&] { state_->buffer->abortWaitRecv(); });
  }

 private:
  std::string refusal(const Way& way, std::size_t offset, std::size_t bytes) const {
    const std::size_t size = state_->buffer->size;
    if (offset > size || bytes > size - offset)
      return std::to_string(bytes) + " bytes at " + std::to_string(offset) + " of a buffer of " +
             std::to_string(size);
    return way.error();
  }
  template <class Act>
  void post(int peer, Act act) {
    errands_->post([in_use = in_use_, state = state_, peer, act] {
      const std::lock_guard lock(in_use->mutex);
      if (state->buffer && in_use->has_pair.at(static_cast<std::size_t>(peer))) act(*state);
    });
  }
  template <class Act>
  static GlooWait wait(std::string& error, const Way& way, const Act& act) {
    bool is_done = false;
    error = complaint_of([&] { is_done = act(); });
    if (error.empty() && !is_done) error = way.error();
    if (!error.empty()) return GlooWait::failed;
    return is_done ? GlooWait::done : GlooWait::let_go;
  }

  std::shared_ptr<Errands> errands_;
  std::shared_ptr<InUse> in_use_;
  std::shared_ptr<BufferState> state_;
};

// Where a pair of gloo listens.
int port_of(const gloo::transport::Pair& pair) {
  const auto& address = dynamic_cast<const gloo::transport::tcp::Address&>(pair.address());
  if (address.getSeq() != gloo::transport::tcp::Address::kSequenceNumberUnset)
    throw std::runtime_error(
        "this gloo is newer than what Laconic knows, that of Debian 12: use MPI");
  const sockaddr_storage& name = address.getSockaddr();
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

// An address that comes after all others: gloo's end with the lower one waits for the other.
std::vector<char> last_address(const std::string& like) {
  sockaddr_storage last{};
  if (like.find(':') != std::string::npos) {
    auto& six = reinterpret_cast<sockaddr_in6&>(last);
    six.sin6_family = AF_INET6;
    std::memset(&six.sin6_addr, 0xff, sizeof six.sin6_addr);
    six.sin6_port = 0xffff;
  } else {
    auto& four = reinterpret_cast<sockaddr_in&>(last);
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = INADDR_BROADCAST;
    four.sin_port = 0xffff;
  }
  return gloo::transport::tcp::Address(last).bytes();
}

// gloo makes its connections itself, or by a class like this.
class FullMesh final : public gloo::Context {
 public:
  FullMesh(int rank, int size, const std::shared_ptr<gloo::transport::tcp::Device>& device,
           milliseconds accept_within)
      : gloo::Context(rank, size) {
    device_ = device;
    transportContext_ = device_->createContext(rank, size);
    transportContext_->setTimeout(accept_within / kGlooPatience);
  }
  gloo::transport::Pair& make_pair(int peer) {
    auto& pair = transportContext_->createPair(peer);
    return *pair;
  }
};

class Mesh final : public GlooMesh {
 public:
  Mesh(int rank, int size, std::shared_ptr<Errands> errands, std::string address,
       milliseconds accept_within)
      : errands_(std::move(errands)),
        address_(std::move(address)),
        in_use_(std::make_shared<InUse>()),
        context_(std::make_shared<FullMesh>(rank, size, errands_->shared_device(), accept_within)) {
    in_use_->has_pair.resize(static_cast<std::size_t>(size), false);
  }

  int listen(int peer, std::string& error) override {
    int port = 0;
    error = complaint_of([&] { port = port_of(context_->make_pair(peer)); });
    if (error.empty()) set_pair(peer, true);
    return port;
  }
  bool accept(int peer) override {
    return complaint_of([&] { context_->getPair(peer)->connect(last_address(address_)); }).empty();
  }
  std::string watch(int peer, int descriptor) override {
    return complaint_of([&] {
      auto& handler = dynamic_cast<gloo::transport::tcp::Handler&>(*context_->getPair(peer));
      errands_->device().registerDescriptor(descriptor, EPOLLIN, &handler);
    });
  }
  // Gloo's thread must go on while a pair goes, so it must not wait for the lock meanwhile.
  void drop(int peer) override {
    set_pair(peer, false);
    complaint_of([&] { context_->getPair(peer).reset(); });
  }
  std::unique_ptr<GlooBuffer> make_buffer(std::byte* data, std::size_t bytes,
                                          std::string& error) override {
    std::unique_ptr<GlooBuffer> buffer;
    error = complaint_of([&] {
      buffer =
          std::make_unique<Buffer>(errands_, in_use_, context_->createUnboundBuffer(data, bytes));
    });
    return buffer;
  }
  std::string sum(std::span<float> values, milliseconds limit) override {
    return complaint_of([&] {
      gloo::AllreduceOptions options(context_);
      options.setOutput(values.data(), values.size());
      options.setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      options.setTimeout(limit);
      gloo::allreduce(options);
    });
  }
  // There is no function for it, but a wait that times out does just this.
  void abandon() override {
    char byte = 0;
    complaint_of([&] {
      const auto buffer = context_->createUnboundBuffer(&byte, 1);
      buffer->waitRecv(milliseconds{1});
    });
  }

 private:
  void set_pair(int peer, bool has_pair) {
    const std::lock_guard lock(in_use_->mutex);
    in_use_->has_pair.at(static_cast<std::size_t>(peer)) = has_pair;
  }

  std::shared_ptr<Errands> errands_;
  std::string address_;
  std::shared_ptr<InUse> in_use_;
  std::shared_ptr<FullMesh> context_;
};

class Engine final : public GlooEngine {
 public:
  explicit Engine(const std::string& address) : address_(address) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address;
    errands_ = std::make_shared<Errands>(std::make_shared<gloo::transport::tcp::Device>(
        gloo::transport::tcp::CreateDeviceAttr(attributes)));
  }
  std::unique_ptr<GlooMesh> make_mesh(int rank, int size, milliseconds accept_within,
                                      std::string& error) override {
    std::unique_ptr<GlooMesh> mesh;
    error = complaint_of(
        [&] { mesh = std::make_unique<Mesh>(rank, size, errands_, address_, accept_within); });
    return mesh;
  }

 private:
  std::string address_;
  std::shared_ptr<Errands> errands_;
};

}  // namespace
}  // namespace laconic

extern "C" {

extern const int laconic_plugin_interface;
const int laconic_plugin_interface = laconic::kGlooInterface;

laconic::GlooEngine* laconic_plugin_entry(const std::string& address, std::string& error) {
  laconic::GlooEngine* engine = nullptr;
  error = laconic::complaint_of([&] { engine = new laconic::Engine(address); });
  return engine;
}
}
