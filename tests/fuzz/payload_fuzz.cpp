// A codec against bytes nobody vouches for (payload_input.hpp): a payload, which decodes or raises
// WireError; or a tensor, which must encode within its bound, twice alike, to something that
// decodes; or a tensor and changes to its payload.
#include "tests/fuzz/payload_input.hpp"

#include <algorithm>
#include <cstdint>

#include "laconic/base/error.hpp"

using namespace laconic;
using namespace laconic::fuzz;

namespace {

void require(bool condition) {
  if (!condition) __builtin_trap();
}

bool accepts(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload) {
  try {
    check_payload(codec, tensor, payload);
    return true;
  } catch (const WireError& error) {
    require(error.offset() <= payload.size());
    return false;
  }
}

// What passes the check decodes, and its sections cover it.
void try_payload(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload) {
  if (!accepts(codec, tensor, payload)) return;
  require(payload.size() <= max_payload_bytes(codec, tensor));
  Bytes out(elements_of(tensor) * bytes_of(tensor.dtype));
  try {
    decode(codec, payload, input_of(0), {tensor, out.data()});
  } catch (const WireError&) {  // of another basis, which the payload alone does not tell
    require(std::holds_alternative<Transform>(codec));
  }
  std::uint64_t at = 0;
  for (const Section& s : payload_sections(codec, tensor, payload)) {
    require(s.offset == at);
    at += s.bytes;
  }
  require(at == payload.size());
}

Bytes soundly_encoded(const CodecSpec& codec, const TensorSpec& tensor, ByteView x,
                      std::uint8_t seed) {
  Bytes payload = encoded(codec, tensor, x, seed);
  const std::uint64_t most = max_payload_bytes(codec, tensor);
  require(payload.size() <= most);
  require(payload.size() == most || !has_fixed_size(codec));
  return payload;
}

void try_tensor(const CodecSpec& codec, const TensorSpec& tensor, ByteView data,
                std::uint8_t seed) {
  const Bytes x = tensor_of(tensor, data);
  const Bytes payload = soundly_encoded(codec, tensor, x, seed);
  require(std::ranges::equal(payload, soundly_encoded(codec, tensor, x, seed)));
  require(accepts(codec, tensor, payload));
  try_payload(codec, tensor, payload);
}

void try_change(const CodecSpec& codec, const TensorSpec& tensor, ByteView data,
                std::uint8_t seed) {
  Bytes payload = soundly_encoded(codec, tensor, tensor_of(tensor, data), seed);
  change(payload, data);
  try_payload(codec, tensor, payload);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const PayloadInput input(ByteView(reinterpret_cast<const std::byte*>(data), size));
  switch (input.kind) {
    case PayloadKind::payload: try_payload(input.codec(), input.tensor(), input.rest); break;
    case PayloadKind::tensor:
      try_tensor(input.codec(), input.tensor(), input.rest, input.seed);
      break;
    case PayloadKind::change:
      try_change(input.codec(), input.tensor(), input.rest, input.seed);
      break;
  }
  return 0;
}
