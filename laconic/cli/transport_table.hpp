// cli/transport_table.hpp — the transports of this build: transport/transport_kind.hpp, and who
// makes each.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/launch/place.hpp"
#include "laconic/rendezvous/open.hpp"
#include "laconic/transport/transport_kind.hpp"

namespace laconic {

struct TransportRow {
  TransportTraits traits;
  bool is_available = false;  // in this build
  // This rank's end. The store is null unless traits.meets_at_store. Null where ranks are threads,
  // which are made together (transport/in_process.hpp).
  std::unique_ptr<Transport> (*connect)(const Place& place, const Meeting& meeting, Store* store);
};

const std::vector<TransportRow>& transport_table();

// The row that network.transport means for ranks that are processes. Throws ConfigError, with all
// there are, when this build has it not.
const TransportRow& choose_transport(TransportKind kind);

std::string describe_transports();  // "in_process, gloo, mpi (not in this build)"

}  // namespace laconic
