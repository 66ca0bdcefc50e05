// engine/test_message.hpp — messages whose every byte can be checked. For tests.
#pragma once

#include <cstdint>
#include <memory>

#include "laconic/engine/engine.hpp"

namespace laconic {

inline Bytes message_of(std::size_t bytes, std::uint64_t seed) {
  Bytes message(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    message[i] = static_cast<std::byte>((i * 131 + (i >> 8) * 7 + seed * 29) & 0xff);
  return message;
}

inline SendRequest request_to(Rank to, Tag tag, Bytes message, DeadlineKey key = 0) {
  SendRequest request;
  request.to = to;
  request.tag = tag;
  request.key = key;
  request.raw_bytes = 2 * message.size();
  request.message = std::make_shared<const Bytes>(std::move(message));
  return request;
}

inline Tag gradient_tag(std::uint64_t number, std::uint32_t part = 0) {
  return make_tag({.traffic = Traffic::dp_gradient, .unit = 2, .number = number, .part = part});
}

}  // namespace laconic
