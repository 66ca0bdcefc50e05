#include "laconic/codec/convert.hpp"

#include <stdexcept>

namespace laconic {
namespace {
[[noreturn]] void unwritten() {
  throw std::logic_error("convert is not written yet");
}
}  // namespace
void widen(Dtype, const void*, std::size_t, float*) {
  unwritten();
}
void narrow(Dtype, const float*, std::size_t, void*) {
  unwritten();
}
void widen_bytes(Dtype, const std::byte*, std::size_t, float*) {
  unwritten();
}
void narrow_bytes(Dtype, const float*, std::size_t, std::byte*) {
  unwritten();
}
}  // namespace laconic
