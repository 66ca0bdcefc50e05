#include <stdexcept>

#include "laconic/codec/part.hpp"

namespace laconic::part {

namespace {
[[noreturn]] void unwritten() {
  throw std::logic_error("random_k is not written yet");
}
}  // namespace

std::size_t encode(const RandomK&, const TensorSpec&, const float*, const CodecInput&, std::byte*) {
  unwritten();
}
void check_payload(const RandomK&, const TensorSpec&, ByteView) {
  unwritten();
}
void decode(const RandomK&, const TensorSpec&, ByteView, const CodecInput&, float*) {
  unwritten();
}
std::vector<Section> sections(const RandomK&, const TensorSpec&, ByteView) {
  unwritten();
}

}  // namespace laconic::part
