// transport/shaped.hpp — a slow network over a fast one, without root and without tc.
//
// Every message first takes its time on the wire, at the rate of its link and
// after those sent before it: that is how long send() blocks. Then it travels
// for the latency, plus a jitter drawn anew for each, and is handed to the
// transport below. Nothing overtakes on a link, as on a TCP connection. Both
// directions are independent, and a message to oneself meets no network.
//
//   send ─► wire: bytes / rate ─► lane: latency + jitter ─► transport below
//
// What one could get wrong: only what leaves is shaped, so every rank needs the
// decorator; headers of TCP and IP are not counted; a native sum would go round
// the wires, so there is none. Since handing over happens later, a failure
// of it is thrown by the next send to that rank. close() first delivers what is
// still travelling.
//
// The mean rate is exact: a sender that woke late is not charged for it.
#pragma once

#include <memory>

#include "laconic/transport/shape.hpp"
#include "laconic/transport/transport.hpp"

namespace laconic {

// Requires: check(spec, transport->size()) finds nothing.
std::unique_ptr<Transport> make_shaped(std::unique_ptr<Transport> transport, const ShapeSpec& spec);

}  // namespace laconic
