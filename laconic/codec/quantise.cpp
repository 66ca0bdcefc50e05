#include <stdexcept>

#include "laconic/codec/part.hpp"

namespace laconic::part {

namespace {
[[noreturn]] void unwritten() {
  throw std::logic_error("quantise is not written yet");
}
}  // namespace

std::size_t encode(const Quantise&, const TensorSpec&, const float*, const CodecInput&,
                   std::byte*) {
  unwritten();
}
void check_payload(const Quantise&, const TensorSpec&, ByteView) {
  unwritten();
}
void decode(const Quantise&, const TensorSpec&, ByteView, const CodecInput&, float*) {
  unwritten();
}
std::vector<Section> sections(const Quantise&, const TensorSpec&, ByteView) {
  unwritten();
}

bool is_fusable(const Quantise&) {
  return false;
}
std::size_t encode_with_feedback(const Quantise&, const TensorSpec&, const float*, const float*,
                                 float*, const CodecInput&, std::byte*) {
  unwritten();
}
std::size_t encode_difference(const Quantise&, const TensorSpec&, const float*, const float*,
                              float*, const CodecInput&, std::byte*) {
  unwritten();
}
void decode_difference(const Quantise&, const TensorSpec&, ByteView, const float*, float*,
                       const CodecInput&, float*) {
  unwritten();
}

}  // namespace laconic::part
