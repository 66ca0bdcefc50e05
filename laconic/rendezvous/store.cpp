#include "laconic/rendezvous/store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/rendezvous/socket.hpp"

namespace laconic {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{1};
constexpr milliseconds kLongestPause{50};
// libtorch counts whole seconds when it connects. By then we know that somebody answers.
constexpr milliseconds kLeastConnect{2000};
constexpr milliseconds kLongestKnock{2000};
// What a question gets that is asked shortly before the deadline of the meeting, and later.
constexpr milliseconds kLeastAnswer{1000};
constexpr milliseconds kLateAnswer{10'000};

milliseconds until(Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, milliseconds{1});
}

// Sleeps a little, longer each time; false when the deadline has passed.
bool pause_before_next(milliseconds& pause, Deadline deadline) {
  const Deadline now = std::chrono::steady_clock::now();
  if (now >= deadline) return false;
  std::this_thread::sleep_until(std::min<Deadline>(deadline, now + pause));
  pause = std::min(pause * 2, kLongestPause);
  return true;
}

// TCPStore knocks too, but complains on stderr at every attempt and cannot say what is wrong.
std::string wait_for_answer(const StoreAddress& address, Deadline deadline) {
  const std::vector<std::string> candidates = resolve(address.host, address.port);
  const milliseconds limit = until(deadline);
  for (milliseconds pause = kFirstPause;;) {
    for (const std::string& candidate : candidates)
      if (answers(candidate, address.port, deadline)) return candidate;
    if (!pause_before_next(pause, deadline)) break;
  }
  throw Timeout(0, fmt::format("rank 0 at {}:{} did not answer within {:g} s; is it running, and "
                               "can this machine reach it?",
                               address.host, address.port,
                               std::ceil(static_cast<double>(limit.count()) / 10) / 100));
}

void require_free_port(const StoreAddress& address) {
  if (is_port_free(address.port)) return;
  throw ConfigError(
      fmt::format("port {} on this machine is in use, perhaps by another run: choose "
                  "another MASTER_PORT",
                  address.port));
}

c10d::TCPStoreOptions options_of(const StoreAddress& address, Deadline deadline) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(address.port);
  options.isServer = address.hosts_here;
  options.numWorkers = static_cast<std::size_t>(address.clients);
  options.waitWorkers = false;
  options.timeout = std::max(until(deadline), kLeastConnect);
  return options;
}

// libtorch 1.13 opens a second connection for each client, never uses it, and ends the process when
// it is reset; which happens when the table goes away before it has accepted it. A table that does
// not hang up in time is no reason to fail: nothing else depends on it.
void wait_until_accepted(const std::string& host, int port, Deadline deadline) {
  knock(host, port, std::min<Deadline>(deadline, std::chrono::steady_clock::now() + kLongestKnock));
}

std::string text_of(const Awaited& awaited, const std::string& key) {
  return fmt::format("{} (key {})", awaited.what.empty() ? "a value" : awaited.what, key);
}

void require_port_number(int port) {
  if (port >= 1 && port <= 65535) return;
  throw ConfigError(fmt::format("MASTER_PORT = {} is not a port: 1 to 65535 are", port));
}

}  // namespace

struct Store::Client {
  Client(const std::string& host, const c10d::TCPStoreOptions& options) : tcp(host, options) {}
  c10d::TCPStore tcp;

  static std::string first_line(std::string text) { return text.substr(0, text.find('\n')); }
};

namespace {

double seconds_since(Deadline begun) {
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun;
  return std::round(passed.count() * 10) / 10;
}

}  // namespace

// Calls act(); when it takes longer than until `limit`, ends the connection under it, and throws
// Timeout. Ranks that are threads of one process meet at one place and are ended together: if it is
// silent, it is so to all of them.
template <class Act>
auto Store::within(Deadline limit, const std::string& what, const Act& act) {
  const Deadline begun = std::chrono::steady_clock::now();
  struct Bell {
    Watchdog& watchdog;
    Watchdog::Place place;
    ~Bell() { watchdog.remove(place); }
  };
  const Bell bell{watchdog_, watchdog_.add([this] {
                    is_silent_ = true;
                    end_connections_to(numeric_host_, address_.port);
                  })};
  watchdog_.set(bell.place, limit);
  try {
    return act();
  } catch (const std::exception&) {
    if (!is_silent_) throw;
    throw Timeout(0, fmt::format("{} accepts connections but has not answered for {:g} s; waited "
                                 "there for {}: is that the rendezvous of this run?",
                                 where(), seconds_since(begun), what));
  }
}

// libtorch's exceptions have several types and speak of sockets.
template <class Act>
auto Store::ask(const std::string& what, const Act& act) {
  const Deadline now = std::chrono::steady_clock::now();
  const Deadline limit =
      now < deadline_ ? std::max<Deadline>(deadline_, now + kLeastAnswer) : now + kLateAnswer;
  try {
    return within(limit, what, [&] { return act(client_->tcp); });
  } catch (const Timeout&) {
    throw;
  } catch (const std::exception& error) {
    throw PeerLost(0, fmt::format("the rendezvous at {} does not answer any more: {}", where(),
                                  Client::first_line(error.what())));
  }
}

Store::Store(const StoreAddress& address, Deadline deadline)
    : address_(address), deadline_(deadline) {
  require_port_number(address.port);
  std::string& host = numeric_host_;
  if (address.hosts_here) {
    resolve(address.host, address.port);  // the others have to; say so before they wait
    require_free_port(address);
    host = "127.0.0.1";
  } else {
    host = wait_for_answer(address, deadline);
  }
  try {
    client_ = within(std::max<Deadline>(deadline, in(kLeastConnect)), "a first answer",
                     [&] { return std::make_unique<Client>(host, options_of(address, deadline)); });
  } catch (const Timeout&) {
    throw;
  } catch (const std::exception& error) {
    if (address.hosts_here) require_free_port(address);  // taken in between
    throw Timeout(
        0, fmt::format("no rendezvous at {}: {}", where(), Client::first_line(error.what())));
  }
  wait_until_accepted(host, address.port, deadline);
}

Store::~Store() = default;

std::string Store::where() const {
  return fmt::format("{}:{}", address_.host, address_.port);
}

void Store::set(const std::string& key, ByteView value) {
  const auto* const data = reinterpret_cast<const std::uint8_t*>(value.data());
  ask("room for " + key, [&](c10d::TCPStore& tcp) {
    tcp.set(key, std::vector<std::uint8_t>(data, data + value.size()));
  });
}

bool Store::exists(const std::string& key, const Awaited& awaited) {
  return ask(text_of(awaited, key), [&](c10d::TCPStore& tcp) { return tcp.check({key}); });
}

std::int64_t Store::add(const std::string& key, std::int64_t n) {
  return ask("the number " + key, [&](c10d::TCPStore& tcp) { return tcp.add(key, n); });
}

// Asks again and again instead of calling TCPStore::wait: in libtorch 1.13 the answer to a wait
// that was given up arrives later and is taken for the answer to the next question.
Bytes Store::get(const std::string& key, Deadline deadline, const Awaited& awaited) {
  for (milliseconds pause = kFirstPause; !exists(key, awaited);)
    if (!pause_before_next(pause, deadline))
      throw Timeout(awaited.from, fmt::format("waited in vain at the rendezvous {} for {}", where(),
                                              text_of(awaited, key)));
  const std::vector<std::uint8_t> value =
      ask(text_of(awaited, key), [&](c10d::TCPStore& tcp) { return tcp.get(key); });
  const auto* const data = reinterpret_cast<const std::byte*>(value.data());
  return Bytes(data, data + value.size());
}

}  // namespace laconic
