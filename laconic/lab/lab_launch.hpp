// lab/lab_launch.hpp — a command as the ranks of one run, spread over the hosts of a lab.
//
// Neighbouring ranks share a host: with two on each, ranks 0 and 1 are on host
// 0. Every rank finds in its environment what torchrun would set, so that the
// command may be `laconic train`, a script of PyTorch, or a shell that prints
// them. launch/local.hpp starts and supervises.
#pragma once

#include <string>
#include <vector>

#include "laconic/lab/lab_plan.hpp"
#include "laconic/launch/child.hpp"
#include "laconic/machine/environment.hpp"

namespace laconic {

struct LabRun {
  std::string lab;  // its name
  int hosts = 0;
  int ranks_per_host = 1;
  int threads = 1;  // of one rank
  int port = 29500;
  double grace_seconds = 10;  // after a failure, for the others to end by themselves
  Words words;                // the command

  int ranks() const { return hosts * ranks_per_host; }
};

// Turns a process that launch/local.hpp would start into one of `rank` on its host. Pure. `ip` is
// the path of that program.
void place_in_lab(const LabRun& run, const std::string& ip, int rank, ChildSpec& child);

// The exit code of the run. Requires: the lab is up, rights were checked. Throws SystemError.
int launch_in_lab(const LabRun& run);

}  // namespace laconic
