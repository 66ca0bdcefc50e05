// transport/faulty.hpp — a bad network, or a bad rank, over a good one.
//
// Sends go wrong as the faults say (transport/fault.hpp); receiving is left
// alone, so a rank that misbehaves is seen by its peers as they would see it in
// earnest. A native sum would go round the faults, so there is none.
#pragma once

#include <memory>

#include "laconic/transport/fault.hpp"
#include "laconic/transport/transport.hpp"

namespace laconic {

// Requires: check(faults, transport->size()) finds nothing.
std::unique_ptr<Transport> make_faulty(std::unique_ptr<Transport> transport, FaultSpecs faults);

}  // namespace laconic
