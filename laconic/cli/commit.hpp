// cli/commit.hpp — what this program was built from, which need not be what lies in the tree now.
//
// Its source is written by cmake/commit.cmake at every build.
#pragma once

#include <string_view>

namespace laconic {

// "1bd9e6a2f0", with "-dirty" when files were changed since; "unknown" without git.
std::string_view build_commit();

}  // namespace laconic
