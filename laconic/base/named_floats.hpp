// base/named_floats.hpp — what somebody remembers between steps, by name: residuals, bases.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace laconic {

using NamedFloats = std::map<std::string, std::vector<float>>;

}  // namespace laconic
