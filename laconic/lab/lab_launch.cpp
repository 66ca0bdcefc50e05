#include "laconic/lab/lab_launch.hpp"

#include <unistd.h>

#include "laconic/lab/tool.hpp"
#include "laconic/launch/local.hpp"

namespace laconic {

void place_in_lab(const LabRun& run, const std::string& ip, int rank, ChildSpec& child) {
  const int host = rank / run.ranks_per_host;
  child.program = ip;
  child.words = {"ip", "netns", "exec", host_namespace(run.lab, host)};
  child.words.insert(child.words.end(), run.words.begin(), run.words.end());
  Environment& e = child.environment;
  e["RANK"] = std::to_string(rank);
  e["WORLD_SIZE"] = std::to_string(run.ranks());
  e["LOCAL_RANK"] = std::to_string(rank % run.ranks_per_host);
  e["LOCAL_WORLD_SIZE"] = std::to_string(run.ranks_per_host);
  e["MASTER_ADDR"] = host_address(0);
  e["MASTER_PORT"] = std::to_string(run.port);
  e.try_emplace("OMP_NUM_THREADS", std::to_string(run.threads));
  // The machine's name means nothing inside: who looks it up ends on loopback and meets nobody.
  for (const char* name : {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"})
    e.try_emplace(name, "eth0");
}

int launch_in_lab(const LabRun& run) {
  const std::string ip = find_tool("ip");
  LaunchSpec spec;
  spec.program = ip;
  spec.environment = current_environment();
  spec.ranks = run.ranks();
  spec.port = run.port;
  spec.patience.grace_seconds = run.grace_seconds;
  spec.has_colour = ::isatty(STDOUT_FILENO) == 1;
  spec.adapt = [&](int rank, ChildSpec& child) { place_in_lab(run, ip, rank, child); };
  return launch_local(spec);
}

}  // namespace laconic
