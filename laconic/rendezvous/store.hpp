// rendezvous/store.hpp — a small table that all ranks can read and write: how they find each other.
//
// libtorch's TCPStore behind our errors. One process holds the table (rank 0,
// or the agent of torchrun), the others are its clients. It carries addresses
// and agreements before the transport stands, never training data.
//
// What one could get wrong: the table lives in the process of rank 0 and goes
// with it, so rank 0 keeps its Store as long as anybody may still ask.
//
// Every wait has a deadline, also one for a host that accepts a connection and then
// stays silent: TCPStore would wait for ever, so a Watchdog ends the connection.
// Failures are sorted by who has to act: a name that does not resolve or a port
// that is taken is a ConfigError, a host that does not answer a Timeout, a table
// that went away PeerLost of rank 0.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "laconic/base/bytes.hpp"
#include "laconic/rendezvous/watchdog.hpp"
#include "laconic/transport/transport.hpp"

namespace laconic {

struct StoreAddress {
  std::string host;
  int port = 0;
  bool hosts_here = false;  // this process holds the table
  int clients = 0;          // how many there will be, this process among them
};

// Who was to write a key, and what it is, for the message of a Timeout.
struct Awaited {
  Rank from = -1;
  std::string what;  // "the addresses of rank 3"
};

class Store {
 public:
  Store(const StoreAddress& address, Deadline deadline);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  void set(const std::string& key, ByteView value);
  bool exists(const std::string& key, const Awaited& awaited = {});
  // Adds to a number that begins at 0; returns the sum.
  std::int64_t add(const std::string& key, std::int64_t n);
  // Waits until somebody has set it. Throws Timeout.
  Bytes get(const std::string& key, Deadline deadline, const Awaited& awaited = {});

  std::string where() const;  // "host:port"
  // A question was not answered in time, and the connection was ended: no other will be.
  bool is_silent() const { return is_silent_; }

 private:
  struct Client;  // hides libtorch
  template <class Act>
  auto within(Deadline limit, const std::string& what, const Act& act);
  template <class Act>
  auto ask(const std::string& what, const Act& act);

  StoreAddress address_;
  std::string numeric_host_;  // where the connection leads
  Deadline deadline_;         // for meeting, of the constructor
  std::atomic<bool> is_silent_ = false;
  Watchdog watchdog_;
  std::unique_ptr<Client> client_;
};

}  // namespace laconic
