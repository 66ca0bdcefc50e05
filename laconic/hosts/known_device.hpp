// hosts/known_device.hpp — devices by name, with what their makers and our benches say of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "laconic/hosts/hosts.hpp"

namespace laconic {

std::optional<HostDevice> known_device(std::string_view name);
std::vector<std::string> known_device_names();

}  // namespace laconic
