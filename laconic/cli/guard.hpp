// cli/guard.hpp — the one place where exceptions end.
#pragma once

#include <functional>

namespace laconic {

// Runs `body` and returns its exit code; an exception becomes a message on standard error and the
// exit code of its kind (base/error.hpp).
int guarded(const std::function<int()>& body);

}  // namespace laconic
