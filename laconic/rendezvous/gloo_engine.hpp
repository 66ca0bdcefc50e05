// rendezvous/gloo_engine.hpp — what laconic-gloo.so does, the module around the library gloo.
//
// A module (base/plugin.hpp), because libtorch from PyPI has a newer gloo inside and exports its
// symbols: linked into one program, each would call the other's. It does nothing but call gloo; who
// is connected to whom, messages, waits and errors are the program's (gloo_context.hpp,
// gloo_peer.hpp). It links none of our libraries, and knows no libtorch.
//
// No function throws. What gloo says when something fails comes back as text; an empty text means
// that all is well.
//
// Threads: as gloo's own. Buffers of one mesh may be used from any number of threads at once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace laconic {

enum class GlooWait : std::uint8_t { done, let_go, failed };

// Memory that gloo sends from and receives into. It must stay until the buffer has gone.
class GlooBuffer {
 public:
  virtual ~GlooBuffer() = default;

  // Asks for it, and returns. What goes wrong when it begins is said by the next of its kind, and
  // by whoever waits.
  virtual std::string send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) = 0;
  virtual std::string recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) = 0;
  // Wait, as good as for ever, for one send or receive to complete. `error` is set when `failed`.
  virtual GlooWait wait_send(std::string& error) = 0;
  virtual GlooWait wait_recv(std::string& error) = 0;
  // Let go of whoever waits, or of the next who does.
  virtual void abort_wait_send() = 0;
  virtual void abort_wait_recv() = 0;
};

// One set of connections between all ranks. A pair of gloo has no way to take a connection: it
// listens, and takes the first that comes. So the program connects to it, and then puts the
// connection it wants where gloo has that one.
class GlooMesh {
 public:
  virtual ~GlooMesh() = default;

  // Begins a pair for that rank, in place of the one it may have. Returns the port where it
  // listens, on the address of the engine; 0 and `error` when this cannot be said of this gloo.
  virtual int listen(int peer, std::string& error) = 0;
  // Takes the first connection that has come there. False: none in time, or it has left again.
  virtual bool accept(int peer) = 0;
  // Gloo shall read from this descriptor, which is that of the connection it has taken.
  virtual std::string watch(int peer, int descriptor) = 0;
  // Ends the connection to that rank. What was asked for and has not begun never does.
  virtual void drop(int peer) = 0;

  // Null and `error` when gloo refuses.
  virtual std::unique_ptr<GlooBuffer> make_buffer(std::byte* data, std::size_t bytes,
                                                  std::string& error) = 0;
  // Sums over all ranks; `values` are those of this one, and then the sums.
  virtual std::string sum(std::span<float> values, std::chrono::milliseconds limit) = 0;
  // Ends every operation on these connections, now and later.
  virtual void abandon() = 0;
};

// Gloo on one address of this machine. Meshes may outlive it.
class GlooEngine {
 public:
  virtual ~GlooEngine() = default;
  // `accept_within` is how long accept() waits. Null and `error` when gloo refuses.
  virtual std::unique_ptr<GlooMesh> make_mesh(int rank, int size,
                                              std::chrono::milliseconds accept_within,
                                              std::string& error) = 0;
};

// The entry of the module. Null and `error` when gloo cannot use that address. The caller deletes.
using MakeGlooEngine = GlooEngine* (*)(const std::string& address, std::string& error);
inline constexpr int kGlooInterface = 1;
inline constexpr const char* kGlooModule = "laconic-gloo.so";

}  // namespace laconic
