// launch/local.hpp — all ranks of a run as processes of this machine.
//
// Starts the worker once for each rank, with the variables that torchrun would
// set (launch/place.hpp reads them), merges what the ranks print, and watches
// them until all have ended; after a failure it may start all of them again.
//
// What rank 0 prints goes on as it is, since it speaks for the run; lines of
// the others, and what rank 0 has to complain of, begin with "[3] ". On a
// terminal rank 0 has the terminal itself, so that its progress bar works.
//
// When nobody reads our standard output any more the ranks save and end, as after SIGTERM, and the
// exit code is that of SIGPIPE.
//
// One thread, and signals are read, not caught: SIGINT, SIGTERM, SIGHUP and SIGCHLD
// are blocked while it runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "laconic/launch/child.hpp"
#include "laconic/launch/supervise.hpp"
#include "laconic/machine/environment.hpp"

namespace laconic {

struct LaunchSpec {
  std::string program;             // the worker
  std::vector<std::string> words;  // argv, the name first
  Environment environment;         // of every rank; variables that say which rank are added
  int ranks = 1;
  int port = 0;  // where ranks meet; 0: a free one, another for every attempt
  int max_restarts = 0;
  Patience patience;
  std::string log_folder;          // gets ranks/rank-3.log; empty: no logs
  std::string checkpoints_folder;  // of the run: tells whether there is one to resume from
  bool is_terminal = false;        // standard output and error are one whose cursor moves
  bool has_colour = false;
  // What ranks have as their standard input, all the same: one alone may read it. -1: nothing. No
  // terminal: nobody may read that who is in the background.
  int input = -1;
  bool tells_once = false;    // what all ranks complain of; with logs it always does
  bool serves_forks = false;  // the program begins with serve_forks(): it is loaded once for all
  // The last word on the process of a rank, where it is not like the others; may be empty, and must
  // be where the program serves forks.
  std::function<void(int rank, ChildSpec& child)> adapt;
};

// Runs until all ranks have ended for good; the exit code of the run. Throws SystemError, and
// ConfigError when the port is in use.
int launch_local(const LaunchSpec& spec);

// A port on which nobody listens now, below those that systems give to outgoing connections.
// Throws SystemError when there is none.
int find_free_port();

// Such a port, which no other launcher takes while this lives: between our choice and the moment
// when rank 0 listens there is a second or two.
class ReservedPort {
 public:
  ReservedPort();
  ~ReservedPort();
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  int number() const { return number_; }

 private:
  int number_ = 0;
  int reservation_ = -1;  // a socket whose name says which port; it goes with the process
};

}  // namespace laconic
