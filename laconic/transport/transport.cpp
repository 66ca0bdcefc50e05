#include "laconic/transport/transport.hpp"

#include <cstring>

#include "laconic/base/error.hpp"

namespace laconic {

Bytes copy_of(ByteView message) {
  Bytes copy(message.size());
  if (!message.empty()) std::memcpy(copy.data(), message.data(), message.size());
  return copy;
}

void Transport::send_all(Rank to, std::span<const TaggedMessage> messages, Deadline deadline) {
  for (const auto& [tag, message] : messages) send(to, tag, message, deadline);
}

void Transport::sum(std::span<float>, Deadline) {
  LACONIC_ASSERT(has_sum(), std::string(name()));
}

}  // namespace laconic
