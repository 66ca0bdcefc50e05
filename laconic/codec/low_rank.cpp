#include <stdexcept>

#include "laconic/codec/part.hpp"

namespace laconic::part {

namespace {
[[noreturn]] void unwritten() {
  throw std::logic_error("low_rank is not written yet");
}
}  // namespace

std::size_t encode(const LowRank&, const TensorSpec&, const float*, const CodecInput&, std::byte*) {
  unwritten();
}
void check_payload(const LowRank&, const TensorSpec&, ByteView) {
  unwritten();
}
void decode(const LowRank&, const TensorSpec&, ByteView, const CodecInput&, float*) {
  unwritten();
}
std::vector<Section> sections(const LowRank&, const TensorSpec&, ByteView) {
  unwritten();
}

}  // namespace laconic::part
