// launch/fork_server.hpp — ranks of one machine, forked from a process that has loaded its
// libraries.
//
// A worker takes four tenths of a second to load libtorch and to fill its tables of operators, on
// every rank anew, and all ranks of a machine do the same. So the launcher starts the program once,
// it stops at the beginning of main(), and every rank is a copy of it from there on: its memory is
// shared until it is written to, and a rank is there in a millisecond.
//
// What one could get wrong: a rank must be a child of the launcher, which waits for it, and must
// die with it. A fork of the server would be the server's child; so the server forks twice, the
// process between ends at once, and the rank falls to the launcher, which has asked the kernel for
// such orphans (PR_SET_CHILD_SUBREAPER).
//
// What is decided when a program is loaded is the same on all ranks: the environment that BLAS,
// OpenMP and the allocator read, and where libraries lie in memory. /proc/PID/environ of a rank is
// that of the server: it does not tell the rank.
#pragma once

#include "laconic/launch/child.hpp"

namespace laconic {

// At the launcher; one thread, as for Child.
class ForkServer {
 public:
  // Starts `spec.program`, whose main() must begin with serve_forks(). Throws SystemError.
  explicit ForkServer(ChildSpec spec);
  ~ForkServer();  // ranks that were started stay
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  // A rank whose environment has `variables` besides. Throws SystemError.
  Child start(const Environment& variables, bool has_own_output);

 private:
  int socket_ = -1;
  std::string program_;
  std::optional<Child> server_;
};

// In the program, before it starts a thread: where a ForkServer has started it this does not return
// in the server itself, and returns in every rank. Otherwise it does nothing.
void serve_forks();

}  // namespace laconic
