// codec/reference/reference_float.hpp — 16-bit floats one by one, in integers; for tests only.
#pragma once

#include <cstdint>

#include "laconic/base/dtype.hpp"

namespace laconic::reference {

// Requires: kind is f16 or bf16.
std::uint16_t narrowed(Dtype kind, float x);
float widened(Dtype kind, std::uint16_t bits);

}  // namespace laconic::reference
