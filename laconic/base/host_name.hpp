// base/host_name.hpp — what machines are called.
#pragma once

#include <string>
#include <string_view>

namespace laconic {

std::string host_name();  // of this machine; "unknown-host" when the system does not say

// Whether a host or address, as somebody wrote it, is this machine whoever reads it.
bool is_loopback(std::string_view host);

}  // namespace laconic
