// rendezvous/open.hpp — from "I am rank 2 of 4" to a transport.
//
//   const std::unique_ptr<Store> store = meet(meeting);
//   const std::unique_ptr<Transport> transport = make_gloo(meeting, *store);
//
// meet() refuses when this process does not belong to the run it has found at
// that address: another run id, another number of ranks, or a rank that
// somebody else has claimed already.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "laconic/mesh/mesh.hpp"
#include "laconic/rendezvous/store.hpp"
#include "laconic/transport/transport.hpp"

namespace laconic {

struct Meeting {
  Rank rank = 0;
  int size = 1;
  std::string host = "127.0.0.1";  // MASTER_ADDR
  int port = 29500;                // MASTER_PORT
  std::string run_id;
  int attempt = 0;           // how often the run was restarted: every attempt has keys of its own
  bool agent_store = false;  // torchrun's agent holds the table: rank 0 is a client too
  std::string interface;     // the user's wish (rendezvous/route.hpp); empty: GLOO_SOCKET_IFNAME
  std::chrono::milliseconds deadline{30'000};  // for all of it
};

// Throws ConfigError, Timeout.
std::unique_ptr<Store> meet(const Meeting& meeting);

bool has_gloo();  // the module around the library is there (gloo_engine.hpp)

// Requires: has_gloo(), otherwise FileError. All ranks call it. Rank 0 keeps its store until all
// have returned; throws ConfigError, FileError, PeerLost, Timeout. From here on SIGPIPE is ignored:
// gloo writes to sockets that a peer may have closed.
std::unique_ptr<Transport> make_gloo(const Meeting& meeting, Store& store);

}  // namespace laconic
