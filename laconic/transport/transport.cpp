#include "laconic/transport/transport.hpp"

#include "laconic/base/error.hpp"

namespace laconic {

void Transport::sum(std::span<float>, Deadline) {
  LACONIC_ASSERT(has_sum(), std::string(name()));
}

}  // namespace laconic
