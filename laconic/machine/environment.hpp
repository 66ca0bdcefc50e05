// machine/environment.hpp — what a worker's environment must hold before its libraries load.
//
// BLAS, oneDNN, OpenMP and the allocator read these variables once, when they
// load; setting them inside the worker is too late. So the front decides here,
// by a pure function, and starts workers with the result. A variable that the
// user has set is never overridden: it comes back with the user's value, so
// that a report can show it. The numbers behind each choice: docs/doctor.md.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/machine/cpu.hpp"

namespace laconic {

using Environment = std::map<std::string, std::string>;

struct EnvironmentSetting {
  std::string name;
  std::string value;
  std::string why;  // one clause, for people; also whether the user has set it already
  bool operator==(const EnvironmentSetting&) const = default;
};

// `threads` is how many compute threads one worker gets. The version of libtorch decides whether
// oneDNN is the old one that dies on AMX.
std::vector<EnvironmentSetting> worker_environment(const Cpu& cpu, int threads,
                                                   const Environment& current,
                                                   std::string_view torch_version = "1.13");

// The kernel set OpenBLAS should use on this processor; empty where it chooses well itself.
std::string openblas_core(const Cpu& cpu);

Environment current_environment();  // of this process

}  // namespace laconic
