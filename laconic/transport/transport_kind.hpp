// transport/transport_kind.hpp — which transports there are, and what each asks of those who start
// ranks.
//
// The front and the worker read the same rows; who makes a transport, and whether this build can,
// is in cli/transport_table.hpp. The words are those of network.transport, which also has "auto":
// the first row that connects processes and that the build has.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace laconic {

enum class TransportKind : std::uint8_t { in_process, gloo, mpi };

struct TransportTraits {
  TransportKind kind = TransportKind::in_process;
  std::string_view name;
  std::string_view what;            // for people
  std::string_view remedy;          // where a build has it not
  bool is_one_process = false;      // its ranks are threads: nobody starts processes
  bool meets_at_store = false;      // its ranks find each other at MASTER_ADDR:MASTER_PORT
  bool needs_own_launcher = false;  // its ranks must be started by mpirun or the like
};

inline constexpr std::array<TransportTraits, 3> kTransports = {{
    {.kind = TransportKind::in_process,
     .name = "in_process",
     .what = "ranks are threads of one process",
     .is_one_process = true},
    {.kind = TransportKind::gloo,
     .name = "gloo",
     .what = "processes and machines over TCP",
     .remedy = "install libgloo-dev and build again",
     .meets_at_store = true},
    {.kind = TransportKind::mpi,
     .name = "mpi",
     .what = "ranks that mpirun or srun has started",
     .remedy = "install libopenmpi-dev (or libmpich-dev) and build again",
     .needs_own_launcher = true},
}};
inline constexpr std::string_view kAnyTransport = "auto";

// Null where the name is that of no row: "auto", or none at all.
constexpr const TransportTraits* find_transport(std::string_view name) {
  for (const TransportTraits& row : kTransports)
    if (row.name == name) return &row;
  return nullptr;
}

constexpr bool is_one_process(std::string_view name) {
  const TransportTraits* row = find_transport(name);
  return row != nullptr && row->is_one_process;
}
constexpr bool needs_own_launcher(std::string_view name) {
  const TransportTraits* row = find_transport(name);
  return row != nullptr && row->needs_own_launcher;
}

}  // namespace laconic
