// launch/child.hpp — the process of one rank.
//
// It dies with us (PR_SET_PDEATHSIG), whatever ends us. It has a process group
// of its own: Ctrl-C on a terminal reaches every process of the foreground
// group, and a rank would take ours, passed on, for the second, which ends it
// at once. Nothing to read on its standard input, unless it is given something.
//
// Requires: made by the thread that lives longest, since the kernel watches
// that thread; and while no other thread runs, since between fork and exec it
// allocates.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "laconic/machine/environment.hpp"

namespace laconic {

struct ChildSpec {
  std::string program;
  std::vector<std::string> words;  // argv, the name first
  Environment environment;         // all of it
  bool has_own_output = false;     // writes to our standard output and error itself
  int input = -1;                  // a descriptor, its standard input; -1: nothing to read
};

inline constexpr int kCannotStart = 127;  // the exit code, as shells have it

struct ChildPipe {
  int read = -1;
  int write = -1;
};
struct ChildPipes {
  ChildPipe output, error;
  void close_write_ends();  // here, once the child has them
};
ChildPipes make_pipes();  // Throws SystemError.

class Child {
 public:
  explicit Child(const ChildSpec& spec);  // Throws SystemError.
  // A process that is our child already and writes into these pipes.
  Child(pid_t pid, const ChildPipes& pipes);
  ~Child();  // kills what still runs
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;

  void send(int signal) const;  // nothing, once it has ended
  // How it ended, as waitpid() tells, once; never waits.
  std::optional<int> take_status();

  // Ends of the pipes to read from, never blocking; -1 when closed.
  int output() const { return output_; }
  int error() const { return error_; }
  void close_output();
  void close_error();

 private:
  pid_t pid_ = 0;  // 0: has ended
  int output_ = -1;
  int error_ = -1;
};

}  // namespace laconic
