// cli/example.hpp — what `--help` shows at its end: lines of the verb it is about, to be tried.
#pragma once

#include <string>
#include <string_view>

namespace laconic {

// Examples of a verb, "train" or "config check"; empty for one that is not known. "" has those of
// the program itself, and the meaning of exit codes.
std::string examples_of(std::string_view verb);

}  // namespace laconic
