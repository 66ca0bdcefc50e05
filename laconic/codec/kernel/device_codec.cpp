#include "laconic/codec/device_codec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/codec/device_floats.hpp"
#include "laconic/codec/kernel/device_kernel.hpp"
#include "laconic/codec/staged_layout.hpp"

// Each codec as a few kernels. Those that can handle a memory in their own pass (raw, half,
// huffman's numbers, quantise, sign) do; around the others what is sent, what is received and what
// is remembered are passes of their own, as codec.cpp composes them on the CPU.

namespace laconic {

namespace {

using namespace kernel;

// Scratch, handed out in pieces.
class Arena {
 public:
  explicit Arena(std::byte* at) : at_(at) {}
  static std::uint64_t rounded(std::uint64_t bytes) { return (bytes + 15) / 16 * 16; }
  std::byte* take(std::uint64_t bytes) {
    std::byte* piece = at_;
    at_ += rounded(bytes);
    return piece;
  }
  float* floats(std::uint64_t count) {
    return reinterpret_cast<float*>(take(count * sizeof(float)));
  }
  std::uint32_t* flag() { return reinterpret_cast<std::uint32_t*>(take(16)); }

 private:
  std::byte* at_;
};

std::uint64_t float_bytes(std::uint64_t count) {
  return Arena::rounded(count * sizeof(float));
}

bool has_memory_pass(const CodecSpec& codec) {
  return std::holds_alternative<Raw>(codec) || std::holds_alternative<Half>(codec) ||
         std::holds_alternative<Huffman>(codec) || std::holds_alternative<Quantise>(codec) ||
         std::holds_alternative<Sign>(codec);
}

DeviceSource floats_of(const float* x) {
  return {.x = x};
}
DeviceSink floats_to(float* out) {
  return {.out = out};
}

bool is_float_store(const DeviceSink& sink) {
  return sink.kind == Delivery::store && sink.dtype == Dtype::f32;
}

// Everything of one call.
struct Call {
  const TensorSpec& tensor;
  const DeviceInput& input;
  Arena arena;
  Stream stream;
  std::uint64_t count = elements_of(tensor);
};

// The source's numbers as f32, in its own memory if they are.
const float* as_floats(Call& call, const DeviceSource& source) {
  if (source.dtype == Dtype::f32) return static_cast<const float*>(source.x);
  float* floats = call.arena.floats(call.count);
  device_combine({source.dtype, source.x}, call.count, floats, call.stream);
  return floats;
}

// --- scratch

std::uint64_t value_scratch(const ValueSpec& values, const TensorSpec& tensor) {
  const auto* quantise = std::get_if<Quantise>(&values);
  return quantise == nullptr
             ? 0
             : Arena::rounded(quantise_scratch_bytes(*quantise, layout_of(*quantise, tensor)));
}

std::uint64_t own_scratch(const Raw&, const TensorSpec&) {
  return 0;
}
std::uint64_t own_scratch(const Half&, const TensorSpec&) {
  return 0;
}
std::uint64_t own_scratch(const Huffman&, const TensorSpec&) {
  return 0;
}
std::uint64_t own_scratch(const Transform&, const TensorSpec&) {
  return 0;
}
std::uint64_t own_scratch(const Quantise& c, const TensorSpec& tensor) {
  return c.rotate ? 0 : Arena::rounded(quantise_scratch_bytes(c, layout_of(c, tensor)));
}
std::uint64_t own_scratch(const Sign& c, const TensorSpec& tensor) {
  return Arena::rounded(
      sign_scratch_bytes(elements_of(tensor), static_cast<std::uint64_t>(c.block)));
}
std::uint64_t own_scratch(const TopK& c, const TensorSpec& tensor) {
  const StagedTopK layout = staged_layout(c, tensor);
  return Arena::rounded(largest_scratch_bytes(layout.elements, layout.kept)) +
         float_bytes(layout.kept) + value_scratch(c.values, layout.values);
}
std::uint64_t own_scratch(const RandomK& c, const TensorSpec& tensor) {
  const std::uint64_t elements = elements_of(tensor), kept = kept_count(c.kept, elements);
  return Arena::rounded(choice_scratch_bytes(elements)) + float_bytes(kept) +
         value_scratch(c.values, value_tensor(tensor.dtype, kept));
}
std::uint64_t own_scratch(const LowRank& c, const TensorSpec& tensor) {
  const auto [rows, columns] = matrix_shape(tensor);
  const std::uint64_t rank = effective_rank(c, tensor);
  return float_bytes(rows * rank) + float_bytes(columns * rank) + 3 * 16 +
         Arena::rounded(product_scratch_bytes(rows, columns, rank)) +
         Arena::rounded(subspace_scratch_bytes(std::max(rows, columns), rank));
}
std::uint64_t own_scratch(const AutoEncoder& c, const TensorSpec& tensor) {
  const auto [rows, columns] = matrix_shape(tensor);
  const auto code = static_cast<std::uint64_t>(c.code);
  return float_bytes(rows * code) + float_bytes(columns * code) +
         Arena::rounded(product_scratch_bytes(rows, columns, code));
}

// --- kept values of sparse codecs

// What they travel as, if not quantised.
Dtype plain_dtype(const ValueSpec& spec, const TensorSpec& tensor) {
  const auto* half = std::get_if<Half>(&spec);
  return half != nullptr ? half->kind : tensor.dtype;
}

void encode_values(Call& call, const ValueSpec& spec, const TensorSpec& tensor, const float* values,
                   std::byte* out) {
  const std::uint64_t count = elements_of(tensor);
  if (const auto* quantise = std::get_if<Quantise>(&spec)) {
    const QuantiseLayout layout = layout_of(*quantise, tensor);
    return device_quantise(*quantise, layout, floats_of(values), call.input.seed, out,
                           call.arena.take(quantise_scratch_bytes(*quantise, layout)), call.stream);
  }
  device_narrow(floats_of(values), count, plain_dtype(spec, tensor), out, call.stream);
}

void decode_values(Call& call, const ValueSpec& spec, const TensorSpec& tensor, const std::byte* in,
                   float* values) {
  if (const auto* quantise = std::get_if<Quantise>(&spec))
    return device_dequantise(*quantise, layout_of(*quantise, tensor), in, floats_to(values),
                             call.stream);
  device_widen(plain_dtype(spec, tensor), in, elements_of(tensor), floats_to(values), call.stream);
}

// --- encode: `source` has no memory, except for those with a pass of their own

void encode_one(const Raw&, Call& call, const DeviceSource& source, std::byte* out) {
  if (source.memory == Memory::none)
    return device_copy(source.x, call.count * bytes_of(call.tensor.dtype), out, call.stream);
  device_narrow(source, call.count, call.tensor.dtype, out, call.stream);
}

void encode_one(const Half& c, Call& call, const DeviceSource& source, std::byte* out) {
  device_narrow(source, call.count, c.kind, out, call.stream);
}

void encode_one(const Huffman& c, Call& call, const DeviceSource& source, std::byte* out) {
  device_narrow(source, call.count, c.kind, out, call.stream);
}

// The host has the basis: check_device() refuses it.
void encode_one(const Transform& c, Call&, const DeviceSource&, std::byte*) {
  LACONIC_ASSERT(false, to_text(c));
}

void encode_one(const Quantise& c, Call& call, const DeviceSource& source, std::byte* out) {
  const QuantiseLayout layout = layout_of(c, call.tensor);
  if (c.rotate) return device_rotate(c, layout, source, call.input.seed, out, call.stream);
  device_quantise(c, layout, source, call.input.seed, out,
                  call.arena.take(quantise_scratch_bytes(c, layout)), call.stream);
}

void encode_one(const Sign& c, Call& call, const DeviceSource& source, std::byte* out) {
  const auto block = static_cast<std::uint64_t>(c.block);
  const std::uint64_t blocks = call.count / block + (call.count % block != 0 ? 1 : 0);
  device_sign(source, call.count, block, out, out + 4 * blocks,
              call.arena.take(sign_scratch_bytes(call.count, block)), call.stream);
}

void encode_one(const TopK& c, Call& call, const DeviceSource& source, std::byte* out) {
  const StagedTopK layout = staged_layout(c, call.tensor);
  if (layout.kept == 0) return;
  const float* x = as_floats(call, source);
  if (!layout.has_indices()) return encode_values(call, c.values, layout.values, x, out);
  float* values = call.arena.floats(layout.kept);
  device_largest(x, layout.elements, layout.kept, reinterpret_cast<std::uint32_t*>(out), values,
                 call.arena.take(largest_scratch_bytes(layout.elements, layout.kept)), call.stream);
  encode_values(call, c.values, layout.values, values, out + layout.values_at);
}

constexpr std::size_t kSeedBytes = 8;

void encode_one(const RandomK& c, Call& call, const DeviceSource& source, std::byte* out) {
  const std::uint64_t kept = kept_count(c.kept, call.count);
  if (kept == 0) return;
  std::byte* choice = call.arena.take(choice_scratch_bytes(call.count));
  if (!std::holds_alternative<Quantise>(c.values))
    return device_gather_choice(
        source, call.count, kept, call.input.seed, out,
        {plain_dtype(c.values, value_tensor(call.tensor.dtype, kept)), out + kSeedBytes}, choice,
        call.stream);
  float* values = call.arena.floats(kept);
  device_gather_choice(source, call.count, kept, call.input.seed, out, {Dtype::f32, values}, choice,
                       call.stream);
  encode_values(call, c.values, value_tensor(call.tensor.dtype, kept), values, out + kSeedBytes);
}

void encode_one(const LowRank& c, Call& call, const DeviceSource& source, std::byte* out) {
  constexpr std::uint64_t kStartStream = 4;
  const auto [rows, columns] = matrix_shape(call.tensor);
  const std::uint64_t rank = effective_rank(c, call.tensor);
  if ((rows + columns) * rank == 0) return;
  const Stream stream = call.stream;
  const float* x = as_floats(call, source);
  float* p = call.arena.floats(rows * rank);
  float* q = call.arena.floats(columns * rank);
  std::uint32_t* has_start = call.arena.flag();
  std::uint32_t* is_unsound = call.arena.flag();
  std::uint32_t* is_unfit = call.arena.flag();
  std::byte* products = call.arena.take(product_scratch_bytes(rows, columns, rank));
  std::byte* subspace = call.arena.take(subspace_scratch_bytes(std::max(rows, columns), rank));
  device_clear(has_start, 3 * 16, stream);  // all three
  if (call.input.basis != nullptr) {
    device_copy(call.input.basis, columns * rank * sizeof(float), q, stream);
    device_copy(call.input.has_basis, sizeof(std::uint32_t), has_start, stream);
  }
  device_orthonormalise_start(q, columns, rank, derive(key_of(call.input.seed), kStartStream),
                              has_start, subspace, stream);
  device_multiply(x, rows, columns, q, rank, p, products, stream);
  device_check_finite(p, rows * rank, is_unsound, stream);
  device_orthonormalise(p, rows, rank, subspace, stream);
  device_multiply_transposed(x, rows, columns, p, rank, q, products, stream);
  device_check_finite(q, columns * rank, is_unsound, stream);
  if (call.input.basis != nullptr) {
    device_copy(q, columns * rank * sizeof(float), call.input.basis, stream);
    device_tell_sound(is_unsound, call.input.has_basis, stream);
  }
  device_copy(is_unsound, sizeof(std::uint32_t), is_unfit, stream);
  device_put_factors(c.factors, p, rows * rank, out, is_unfit, stream);
  device_put_factors(c.factors, q, columns * rank, out + rows * rank * bytes_of(c.factors),
                     is_unfit, stream);
  device_spoil_factors(c.factors, is_unfit, (rows + columns) * rank, out, stream);
}

void encode_one(const AutoEncoder& c, Call& call, const DeviceSource& source, std::byte* out) {
  if (call.count == 0) return;
  LACONIC_ASSERT(call.input.maps.encoder != nullptr, to_text(c));
  const auto [rows, columns] = matrix_shape(call.tensor);
  const auto code = static_cast<std::uint64_t>(c.code);
  const float* x = as_floats(call, source);
  float* z = call.arena.floats(rows * code);
  float* map = call.arena.floats(columns * code);
  device_transpose(call.input.maps.encoder, code, columns, map, call.stream);
  device_multiply(x, rows, columns, map, code, z,
                  call.arena.take(product_scratch_bytes(rows, columns, code)), call.stream);
  device_put_factors(c.values, z, rows * code, out, nullptr, call.stream);
  device_settle_factors(c.values, rows * code, out, call.stream);
}

// --- decode

// Decodes by way of f32 where the sink is another: fill(floats).
template <class Fill>
void by_floats(Call& call, const DeviceSink& sink, const Fill& fill) {
  if (is_float_store(sink)) return fill(static_cast<float*>(sink.out));
  float* floats = call.arena.floats(call.count);
  fill(floats);
  device_deliver(floats, call.count, sink, call.stream);
}

void decode_one(const Raw&, Call& call, const std::byte* in, const DeviceSink& sink) {
  if (sink.kind == Delivery::store)
    return device_copy(in, call.count * bytes_of(call.tensor.dtype), sink.out, call.stream);
  device_widen(call.tensor.dtype, in, call.count, sink, call.stream);
}

void decode_one(const Half& c, Call& call, const std::byte* in, const DeviceSink& sink) {
  device_widen(c.kind, in, call.count, sink, call.stream);
}

void decode_one(const Huffman& c, Call& call, const std::byte* in, const DeviceSink& sink) {
  device_widen(c.kind, in, call.count, sink, call.stream);
}

void decode_one(const Transform& c, Call&, const std::byte*, const DeviceSink&) {
  LACONIC_ASSERT(false, to_text(c));
}

void decode_one(const Quantise& c, Call& call, const std::byte* in, const DeviceSink& sink) {
  const QuantiseLayout layout = layout_of(c, call.tensor);
  if (c.rotate) return device_unrotate(c, layout, call.input.seed, in, sink, call.stream);
  device_dequantise(c, layout, in, sink, call.stream);
}

void decode_one(const Sign& c, Call& call, const std::byte* in, const DeviceSink& sink) {
  const auto block = static_cast<std::uint64_t>(c.block);
  const std::uint64_t blocks = call.count / block + (call.count % block != 0 ? 1 : 0);
  device_unsign(in, in + 4 * blocks, call.count, block, sink, call.stream);
}

void decode_one(const TopK& c, Call& call, const std::byte* in, const DeviceSink& sink) {
  const StagedTopK layout = staged_layout(c, call.tensor);
  if (layout.kept == 0) return;
  by_floats(call, sink, [&](float* out) {
    if (!layout.has_indices()) return decode_values(call, c.values, layout.values, in, out);
    float* values = call.arena.floats(layout.kept);
    decode_values(call, c.values, layout.values, in + layout.values_at, values);
    device_scatter(reinterpret_cast<const std::uint32_t*>(in), values, layout.kept, out,
                   layout.elements, call.stream);
  });
}

void decode_one(const RandomK& c, Call& call, const std::byte* in, const DeviceSink& sink) {
  const std::uint64_t kept = kept_count(c.kept, call.count);
  if (kept == 0) return;
  ChoiceValues values{plain_dtype(c.values, value_tensor(call.tensor.dtype, kept)),
                      const_cast<std::byte*>(in + kSeedBytes)};
  if (std::holds_alternative<Quantise>(c.values)) {
    float* floats = call.arena.floats(kept);
    decode_values(call, c.values, value_tensor(call.tensor.dtype, kept), in + kSeedBytes, floats);
    values = {Dtype::f32, floats};
  }
  values.is_scaled = c.unbiased;
  values.factor = static_cast<float>(static_cast<double>(call.count) / static_cast<double>(kept));
  by_floats(call, sink, [&](float* out) {
    device_scatter_choice(values, call.count, kept, call.input.seed, out,
                          call.arena.take(choice_scratch_bytes(call.count)), call.stream);
  });
}

void decode_one(const LowRank& c, Call& call, const std::byte* in, const DeviceSink& sink) {
  const auto [rows, columns] = matrix_shape(call.tensor);
  const std::uint64_t rank = effective_rank(c, call.tensor);
  if (call.count == 0) return;
  float* p = call.arena.floats(rows * rank);
  float* q = call.arena.floats(columns * rank);
  device_get_factors(c.factors, in, rows * rank, p, call.stream);
  device_get_factors(c.factors, in + rows * rank * bytes_of(c.factors), columns * rank, q,
                     call.stream);
  device_multiply_factors(p, rows, q, columns, rank, sink, call.stream);
}

void decode_one(const AutoEncoder& c, Call& call, const std::byte* in, const DeviceSink& sink) {
  if (call.count == 0) return;
  LACONIC_ASSERT(call.input.maps.decoder != nullptr, to_text(c));
  const auto [rows, columns] = matrix_shape(call.tensor);
  const auto code = static_cast<std::uint64_t>(c.code);
  float* z = call.arena.floats(rows * code);
  device_get_factors(c.values, in, rows * code, z, call.stream);
  device_multiply_factors(z, rows, call.input.maps.decoder, columns, code, sink, call.stream);
}

}  // namespace

namespace {

std::string_view wish() {
  const char* value = std::getenv("LACONIC_DEVICE_CODECS");
  return value == nullptr ? "" : value;
}

// What zeros are encoded as, in memory of the device, made once for each kind of message.
const std::byte* hollow_message(const CodecSpec& codec, const TensorSpec& tensor) {
  static std::mutex mutex;
  static auto* const messages = new std::map<std::string, DeviceBuffer>;
  const std::lock_guard lock(mutex);
  DeviceBuffer& message =
      (*messages)[fmt::format("{} of {} {}", to_text(codec), fmt::join(tensor.shape, " "),
                              name_of(tensor.dtype))];
  if (message.is_empty()) {
    const Bytes zeros(elements_of(tensor) * bytes_of(tensor.dtype), std::byte{0});
    Bytes payload(max_payload_bytes(codec, tensor)), staged(staged_bytes(codec, tensor));
    payload.resize(encode(codec, {tensor, zeros.data()}, {}, payload));
    stage(codec, tensor, payload, staged);
    message = DeviceBuffer(staged.size());
    upload(staged, message.data());
  }
  return message.data();
}

}  // namespace

bool has_device_codecs() {
  static const bool is_on = wish() != "0";
  return is_on;
}

bool has_hollow_codecs() {
  static const bool is_hollow = wish() == "hollow";
  return is_hollow;
}

std::uint64_t device_scratch_bytes(const CodecSpec& codec, const TensorSpec& tensor) {
  const std::uint64_t own =
      std::visit([&](const auto& c) { return own_scratch(c, tensor); }, codec);
  // What is sent and what is received, or the numbers as f32, around codecs without a memory.
  return own + (has_memory_pass(codec) ? 0 : 3 * float_bytes(elements_of(tensor)));
}

void device_encode(const CodecSpec& codec, const TensorSpec& tensor, const DeviceSource& source,
                   const DeviceInput& input, std::byte* staged, std::byte* scratch, Stream stream) {
  if (has_hollow_codecs() && is_lossy(codec) && staged_bytes(codec, tensor) > 0)
    return device_copy(hollow_message(codec, tensor), staged_bytes(codec, tensor), staged, stream);
  Call call{tensor, input, Arena(scratch), stream};
  const auto encode_from = [&](const DeviceSource& from) {
    std::visit([&](const auto& c) { encode_one(c, call, from, staged); }, codec);
  };
  if (source.memory == Memory::none || has_memory_pass(codec)) return encode_from(source);
  float* sent = call.arena.floats(call.count);
  float* received = call.arena.floats(call.count);
  const Arena rest = call.arena;
  device_combine(source, call.count, sent, stream);
  encode_from(floats_of(sent));
  call.arena = rest;  // in the order of the stream, so pieces can be used again
  std::visit([&](const auto& c) { decode_one(c, call, staged, floats_to(received)); }, codec);
  device_remember(source, sent, received, call.count, stream);
}

void device_decode(const CodecSpec& codec, const TensorSpec& tensor, const std::byte* staged,
                   const DeviceInput& input, const DeviceSink& sink, std::byte* scratch,
                   Stream stream) {
  Call call{tensor, input, Arena(scratch), stream};
  if (call.count == 0) return;
  if (has_hollow_codecs() && is_lossy(codec)) {
    if (sink.kind == Delivery::store)  // it may hold rubbish
      device_clear(sink.out, call.count * bytes_of(sink.dtype), stream);
    return;
  }
  std::visit([&](const auto& c) { decode_one(c, call, staged, sink); }, codec);
}

}  // namespace laconic
