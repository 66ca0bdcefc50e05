// base/host_name.hpp — what machines are called.
#pragma once

#include <string>
#include <string_view>

namespace laconic {

std::string host_name();  // of this machine; "unknown-host" when the system does not say

// The machine and the network that this process sees: processes with the same name send through the
// same card. A host of a lab has the machine's name and a network namespace of its own.
std::string network_name();

// Whether a host or address, as somebody wrote it, is this machine whoever reads it.
bool is_loopback(std::string_view host);

}  // namespace laconic
