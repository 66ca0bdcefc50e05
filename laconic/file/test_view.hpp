// file/test_view.hpp — for tests: text as the bytes of a file.
#pragma once

#include <span>
#include <string_view>

#include "laconic/base/bytes.hpp"

namespace laconic {

inline ByteView view(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace laconic
