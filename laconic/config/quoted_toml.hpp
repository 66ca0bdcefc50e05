// config/quoted_toml.hpp — a text as TOML has it; for write.cpp. It is in read.cpp, the one source
// that includes toml++, which takes seconds to compile.
#pragma once

#include <string>

namespace laconic {

std::string quoted_toml(const std::string& text);

}  // namespace laconic
