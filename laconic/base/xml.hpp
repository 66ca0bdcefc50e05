// base/xml.hpp — text inside XML, for drawings in SVG.
#pragma once

#include <string>
#include <string_view>

namespace laconic {

// Writes & < > and " by name, and leaves out control characters, which XML cannot hold.
std::string xml_escaped(std::string_view text);

}  // namespace laconic
