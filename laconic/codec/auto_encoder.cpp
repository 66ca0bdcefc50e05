#include <stdexcept>

#include "laconic/codec/part.hpp"

namespace laconic::part {

namespace {
[[noreturn]] void unwritten() {
  throw std::logic_error("auto_encoder is not written yet");
}
}  // namespace

std::size_t encode(const AutoEncoder&, const TensorSpec&, const float*, const CodecInput&,
                   std::byte*) {
  unwritten();
}
void check_payload(const AutoEncoder&, const TensorSpec&, ByteView) {
  unwritten();
}
void decode(const AutoEncoder&, const TensorSpec&, ByteView, const CodecInput&, float*) {
  unwritten();
}
std::vector<Section> sections(const AutoEncoder&, const TensorSpec&, ByteView) {
  unwritten();
}

}  // namespace laconic::part
