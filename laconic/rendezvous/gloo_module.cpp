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

#include <cstring>
#include <exception>
#include <stdexcept>
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

class Buffer final : public GlooBuffer {
 public:
  explicit Buffer(std::unique_ptr<gloo::transport::UnboundBuffer> buffer)
      : buffer_(std::move(buffer)) {}

  std::string send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    return complaint_of([&] { buffer_->send(to, slot, offset, bytes); });
  }
  std::string recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    return complaint_of([&] { buffer_->recv(from, slot, offset, bytes); });
  }
  GlooWait wait_send(std::string& error) override {
    return wait(error, [&] { return buffer_->waitSend(kForever); });
  }
  GlooWait wait_recv(std::string& error) override {
    return wait(error, [&] { return buffer_->waitRecv(kForever); });
  }
  // Nobody can do anything about an abort that fails: whoever waits has a deadline of his own.
  void abort_wait_send() override {
    complaint_of([&] { buffer_->abortWaitSend(); });
  }
  void abort_wait_recv() override {
    complaint_of([&] { buffer_->abortWaitRecv(); });
  }

 private:
  template <class Act>
  static GlooWait wait(std::string& error, const Act& act) {
    bool is_done = false;
    error = complaint_of([&] { is_done = act(); });
    if (!error.empty()) return GlooWait::failed;
    return is_done ? GlooWait::done : GlooWait::let_go;
  }

  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
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
  Mesh(int rank, int size, std::shared_ptr<gloo::transport::tcp::Device> device,
       std::string address, milliseconds accept_within)
      : device_(std::move(device)),
        address_(std::move(address)),
        context_(std::make_shared<FullMesh>(rank, size, device_, accept_within)) {}

  int listen(int peer, std::string& error) override {
    int port = 0;
    error = complaint_of([&] { port = port_of(context_->make_pair(peer)); });
    return port;
  }
  bool accept(int peer) override {
    return complaint_of([&] { context_->getPair(peer)->connect(last_address(address_)); }).empty();
  }
  std::string watch(int peer, int descriptor) override {
    return complaint_of([&] {
      auto& handler = dynamic_cast<gloo::transport::tcp::Handler&>(*context_->getPair(peer));
      device_->registerDescriptor(descriptor, EPOLLIN, &handler);
    });
  }
  void drop(int peer) override {
    complaint_of([&] { context_->getPair(peer).reset(); });
  }
  std::unique_ptr<GlooBuffer> make_buffer(std::byte* data, std::size_t bytes,
                                          std::string& error) override {
    std::unique_ptr<GlooBuffer> buffer;
    error = complaint_of(
        [&] { buffer = std::make_unique<Buffer>(context_->createUnboundBuffer(data, bytes)); });
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
  std::shared_ptr<gloo::transport::tcp::Device> device_;
  std::string address_;
  std::shared_ptr<FullMesh> context_;
};

class Engine final : public GlooEngine {
 public:
  explicit Engine(const std::string& address) : address_(address) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address;
    device_ = std::make_shared<gloo::transport::tcp::Device>(
        gloo::transport::tcp::CreateDeviceAttr(attributes));
  }
  std::unique_ptr<GlooMesh> make_mesh(int rank, int size, milliseconds accept_within,
                                      std::string& error) override {
    std::unique_ptr<GlooMesh> mesh;
    error = complaint_of(
        [&] { mesh = std::make_unique<Mesh>(rank, size, device_, address_, accept_within); });
    return mesh;
  }

 private:
  std::string address_;
  std::shared_ptr<gloo::transport::tcp::Device> device_;
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
