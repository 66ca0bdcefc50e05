#include <stdexcept>

#include "laconic/codec/part.hpp"

namespace laconic::part {

namespace {
[[noreturn]] void unwritten() {
  throw std::logic_error("values are not written yet");
}
}  // namespace

std::size_t encode_values(const ValueSpec&, const TensorSpec&, const float*, const CodecInput&,
                          std::byte*) {
  unwritten();
}
void check_values(const ValueSpec&, const TensorSpec&, ByteView, std::size_t) {
  unwritten();
}
void decode_values(const ValueSpec&, const TensorSpec&, ByteView, const CodecInput&, float*) {
  unwritten();
}
std::vector<Section> value_sections(const ValueSpec&, const TensorSpec&, ByteView, std::size_t) {
  unwritten();
}

}  // namespace laconic::part
