#include "laconic/codec/codec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "laconic/base/denormals.hpp"
#include "laconic/base/error.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/codec/part.hpp"

namespace laconic {

namespace {

// The tensor as f32: itself, or a converted copy that lives as long as this.
class AsFloats {
 public:
  explicit AsFloats(ConstHostTensor x)
      : copy_(x.spec.dtype == Dtype::f32 ? 0 : elements_of(x.spec)),
        data_(static_cast<const float*>(x.data)) {
    if (x.spec.dtype == Dtype::f32) return;
    widen(x.spec.dtype, x.data, elements_of(x.spec), copy_.data());
    data_ = copy_.data();
  }
  const float* data() const { return data_; }

 private:
  Scratch<float> copy_;
  const float* data_;
};

std::size_t raw_bytes(const TensorSpec& tensor) {
  return elements_of(tensor) * bytes_of(tensor.dtype);
}

// Any bytes will do, but a bool that is neither 0 nor 1 is not one that a program may read.
void check_raw(const TensorSpec& tensor, ByteView payload) {
  if (payload.size() != raw_bytes(tensor))
    throw WireError(0, "payload",
                    fmt::format("{} bytes instead of {}", payload.size(), raw_bytes(tensor)));
  if (tensor.dtype != Dtype::boolean) return;
  const auto odd = std::ranges::find_if(payload, [](std::byte b) { return b > std::byte{1}; });
  if (odd != payload.end())
    throw WireError(static_cast<std::size_t>(odd - payload.begin()), "payload.elements",
                    fmt::format("{} is no boolean", std::to_integer<int>(*odd)));
}

// For the codecs other than raw: op(codec) with its own type.
template <class Op>
auto visit_lossy(const CodecSpec& codec, const Op& op) {
  return std::visit(
      [&](const auto& c) {
        if constexpr (std::is_same_v<std::decay_t<decltype(c)>, Raw>) {
          LACONIC_ASSERT(false, "raw has no lossy part");
          return op(Half{});  // never reached; gives the branch its type
        } else {
          return op(c);
        }
      },
      codec);
}

std::size_t encode_floats(const CodecSpec& codec, const TensorSpec& tensor, const float* x,
                          const CodecInput& input, std::span<std::byte> out) {
  if (std::holds_alternative<Raw>(codec)) {  // of a sum or a difference, so rounded to the dtype
    narrow_bytes(tensor.dtype, x, elements_of(tensor), out.data());
    return raw_bytes(tensor);
  }
  return visit_lossy(codec,
                     [&](const auto& c) { return part::encode(c, tensor, x, input, out.data()); });
}

void decode_floats(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload,
                   const CodecInput& input, float* out) {
  if (std::holds_alternative<Raw>(codec))
    return widen_bytes(tensor.dtype, payload.data(), elements_of(tensor), out);
  visit_lossy(codec, [&](const auto& c) { part::decode(c, tensor, payload, input, out); });
}

const Quantise* fusable(const CodecSpec& codec) {
  const auto* quantise = std::get_if<Quantise>(&codec);
  return quantise != nullptr && part::is_fusable(*quantise) ? quantise : nullptr;
}

// What is remembered. Which NaN a sum makes depends on the processor and on the order in which the
// compiler adds, so there is only one.
float remembered(float value) {
  return value == value ? value : std::numeric_limits<float>::quiet_NaN();
}

void add_decoded(const float* before, const float* decoded, std::size_t count, float* after) {
  for (std::size_t i = 0; i < count; ++i) after[i] = remembered(before[i] + decoded[i]);
}

void require_room(const CodecSpec& codec, const TensorSpec& tensor, std::span<std::byte> out) {
  LACONIC_ASSERT(out.size() >= max_payload_bytes(codec, tensor),
                 fmt::format("{} bytes for {}, which may need {}", out.size(), to_text(codec),
                             max_payload_bytes(codec, tensor)));
}

}  // namespace

std::size_t encode(const CodecSpec& codec, ConstHostTensor x, const CodecInput& input,
                   std::span<std::byte> out) {
  require_room(codec, x.spec, out);
  if (std::holds_alternative<Raw>(codec)) {
    const std::size_t bytes = raw_bytes(x.spec);
    if (bytes > 0) std::memcpy(out.data(), x.data, bytes);
    return bytes;
  }
  const ScopedDenormals flush(true);
  const AsFloats floats(x);
  return encode_floats(codec, x.spec, floats.data(), input, out);
}

void check_payload(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload) {
  if (std::holds_alternative<Raw>(codec)) return check_raw(tensor, payload);
  visit_lossy(codec, [&](const auto& c) { part::check_payload(c, tensor, payload); });
}

void decode(const CodecSpec& codec, ByteView payload, const CodecInput& input, HostTensor out) {
  check_payload(codec, out.spec, payload);
  if (std::holds_alternative<Raw>(codec)) {
    if (!payload.empty()) std::memcpy(out.data, payload.data(), payload.size());
    return;
  }
  const ScopedDenormals flush(true);
  if (out.spec.dtype == Dtype::f32)
    return decode_floats(codec, out.spec, payload, input, static_cast<float*>(out.data));
  Scratch<float> floats(elements_of(out.spec));
  decode_floats(codec, out.spec, payload, input, floats.data());
  narrow(out.spec.dtype, floats.data(), elements_of(out.spec), out.data);
}

void kept_factors(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload,
                  std::span<float> factors) {
  LACONIC_ASSERT(is_sparse(codec) && factors.size() == elements_of(tensor), to_text(codec));
  if (const auto* top = std::get_if<TopK>(&codec))
    part::kept_factors(*top, tensor, payload, factors.data());
  else
    part::kept_factors(std::get<RandomK>(codec), tensor, payload, factors.data());
}

std::size_t encode_with_feedback(const CodecSpec& codec, ConstHostTensor x, const float* before,
                                 float* after, const CodecInput& input, std::span<std::byte> out) {
  require_room(codec, x.spec, out);
  const ScopedDenormals flush(true);
  const AsFloats floats(x);
  if (const Quantise* quantise = fusable(codec))
    return part::encode_with_feedback(*quantise, x.spec, floats.data(), before, after, input,
                                      out.data());
  const std::size_t count = elements_of(x.spec);
  Scratch<float> sum(count), decoded(count);
  for (std::size_t i = 0; i < count; ++i) sum.data()[i] = floats.data()[i] + before[i];
  const std::size_t bytes = encode_floats(codec, x.spec, sum.data(), input, out);
  decode_floats(codec, x.spec, out.first(bytes), input, decoded.data());
  for (std::size_t i = 0; i < count; ++i) after[i] = remembered(sum.data()[i] - decoded.data()[i]);
  return bytes;
}

std::size_t encode_difference(const CodecSpec& codec, ConstHostTensor x, const float* before,
                              float* after, const CodecInput& input, std::span<std::byte> out) {
  require_room(codec, x.spec, out);
  const ScopedDenormals flush(true);
  const AsFloats floats(x);
  if (const Quantise* quantise = fusable(codec))
    return part::encode_difference(*quantise, x.spec, floats.data(), before, after, input,
                                   out.data());
  const std::size_t count = elements_of(x.spec);
  Scratch<float> difference(count);
  for (std::size_t i = 0; i < count; ++i) difference.data()[i] = floats.data()[i] - before[i];
  const std::size_t bytes = encode_floats(codec, x.spec, difference.data(), input, out);
  decode_floats(codec, x.spec, out.first(bytes), input, difference.data());
  add_decoded(before, difference.data(), count, after);
  return bytes;
}

void decode_difference(const CodecSpec& codec, ByteView payload, const float* before, float* after,
                       const CodecInput& input, HostTensor out) {
  check_payload(codec, out.spec, payload);
  const ScopedDenormals flush(true);
  const std::size_t count = elements_of(out.spec);
  const bool is_float32 = out.spec.dtype == Dtype::f32;
  if (const Quantise* quantise = fusable(codec)) {
    float* direct = is_float32 && out.data != after ? static_cast<float*>(out.data) : nullptr;
    part::decode_difference(*quantise, out.spec, payload, before, after, input, direct);
    if (direct != nullptr) return;
  } else {
    Scratch<float> difference(count);
    decode_floats(codec, out.spec, payload, input, difference.data());
    add_decoded(before, difference.data(), count, after);
  }
  if (out.data != nullptr && out.data != after) narrow(out.spec.dtype, after, count, out.data);
}

std::vector<Section> payload_sections(const CodecSpec& codec, const TensorSpec& tensor,
                                      ByteView payload) {
  check_payload(codec, tensor, payload);
  if (std::holds_alternative<Raw>(codec))
    return {{"elements", 0, payload.size(),
             fmt::format("{} {}, row-major", elements_of(tensor), name_of(tensor.dtype))}};
  return visit_lossy(codec, [&](const auto& c) { return part::sections(c, tensor, payload); });
}

}  // namespace laconic
