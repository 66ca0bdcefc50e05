#include "laconic/cli/transport_table.hpp"

#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/transport/mpi.hpp"

namespace laconic {

namespace {

std::unique_ptr<Transport> connect_gloo(const Place&, const Meeting& meeting, Store* store) {
  return make_gloo(meeting, *store);
}

// Who has started us need not be MPI, which then knows of one rank only.
std::unique_ptr<Transport> connect_mpi(const Place& place, const Meeting&, Store*) {
  std::unique_ptr<Transport> transport = make_mpi();
  if (transport->size() != place.size || transport->rank() != place.rank)
    throw ConfigError({{"network.transport",
                        fmt::format("to MPI this is rank {} of {}, to {} rank {} of {}: start the "
                                    "ranks with mpirun",
                                    transport->rank(), transport->size(), place.source, place.rank,
                                    place.size)}});
  return transport;
}

TransportRow row_of(const TransportTraits& traits) {
  switch (traits.kind) {
    case TransportKind::automatic: break;  // no row
    case TransportKind::in_process: return {traits, true, nullptr};
    case TransportKind::gloo: return {traits, has_gloo(), connect_gloo};
    case TransportKind::mpi: return {traits, has_mpi(), connect_mpi};
  }
  return {traits, false, nullptr};
}

}  // namespace

const std::vector<TransportRow>& transport_table() {
  static const std::vector<TransportRow> table = [] {
    std::vector<TransportRow> rows;
    for (const TransportTraits& traits : kTransports) rows.push_back(row_of(traits));
    return rows;
  }();
  return table;
}

const TransportRow& choose_transport(TransportKind kind) {
  std::vector<std::string> remedies;
  for (const TransportRow& row : transport_table()) {
    if (row.connect == nullptr || (kind != TransportKind::automatic && kind != row.traits.kind))
      continue;
    if (row.is_available) return row;
    remedies.emplace_back(row.traits.remedy);
  }
  throw ConfigError(
      {{"network.transport", fmt::format("{} cannot connect processes; there are {}{}{}",
                                         name_in(kTransportKindNames, kind), describe_transports(),
                                         remedies.empty() ? "" : ": ", join(remedies, ", or "))}});
}

std::string describe_transports() {
  std::vector<std::string> rows;
  for (const TransportRow& row : transport_table())
    rows.push_back(std::string(row.traits.name) + (row.is_available ? "" : " (not in this build)"));
  return join(rows, ", ");
}

}  // namespace laconic
