// transport/transport_kind.hpp — which transports there are, and what each asks of those who start
// ranks.
//
// The front and the worker read the same rows; who makes a transport, and whether this build can,
// is in cli/transport_table.hpp. `automatic` is no row: it stands for the first that connects
// processes and that the build has.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "laconic/base/named.hpp"

namespace laconic {

enum class TransportKind : std::uint8_t { automatic, in_process, gloo, mpi };

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
// Names of network.transport: "auto", and those of the rows.
inline constexpr auto kTransportKindNames = [] {
  std::array<Named<TransportKind>, kTransports.size() + 1> names = {
      {{TransportKind::automatic, "auto"}}};
  for (std::size_t i = 0; i < kTransports.size(); ++i)
    names[i + 1] = {kTransports[i].kind, kTransports[i].name};
  return names;
}();

// Null for `automatic`.
constexpr const TransportTraits* find_transport(TransportKind kind) {
  for (const TransportTraits& row : kTransports)
    if (row.kind == kind) return &row;
  return nullptr;
}

constexpr bool is_one_process(TransportKind kind) {
  const TransportTraits* row = find_transport(kind);
  return row != nullptr && row->is_one_process;
}
constexpr bool needs_own_launcher(TransportKind kind) {
  const TransportTraits* row = find_transport(kind);
  return row != nullptr && row->needs_own_launcher;
}

}  // namespace laconic
