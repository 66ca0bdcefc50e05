// cli/prepare_argument.hpp — the words of `laconic prepare`, used by cli/arguments.cpp only.
#pragma once

#include "laconic/cli/arguments.hpp"

namespace CLI {
class App;
}

namespace laconic {

void add_words(CLI::App& verb, PrepareCommand& command);

}  // namespace laconic
