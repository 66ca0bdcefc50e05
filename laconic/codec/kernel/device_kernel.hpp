// codec/kernel/device_kernel.hpp — the loops of all codecs on memory of a GPU.
//
// Each function starts kernels on a stream and returns; nothing waits. All pointers are device
// memory. Results are those of the loops for the CPU, bit by bit. Sizes of scratch are said beside
// each function; scratch needs 16-byte alignment, tensors that of their elements (16 bytes is
// faster). Throws std::runtime_error when CUDA refuses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "laconic/base/dtype.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/codec/kernel/level.hpp"
#include "laconic/codec/quantise_layout.hpp"
#include "laconic/codec/spec.hpp"

namespace laconic::kernel {

using Stream = void*;  // a cudaStream_t

// What is encoded: x, x + before or x - before, and where what is remembered goes.
struct DeviceSource {
  Dtype dtype = Dtype::f32;
  const void* x = nullptr;
  Memory memory = Memory::none;
  const float* before = nullptr;
  float* after = nullptr;  // may be `before`
  std::uint32_t* is_unsound =
      nullptr;  // set to 1 when `after` is not finite somewhere; may be null
};

enum class Delivery : std::uint8_t {
  store,       // out = value
  add,         // out = out + value, the value being rounded to the dtype first
  difference,  // after = before + value; out = after
};

// What becomes of decoded values.
struct DeviceSink {
  Delivery kind = Delivery::store;
  Dtype dtype = Dtype::f32;
  void* out = nullptr;  // may be null, or `after` if f32, with difference
  const float* before = nullptr;
  float* after = nullptr;  // may be `before`
};

// --- element by element (element.cu)

// out = what the source says, as f32 with the NaN of an x86; its `after` is not touched.
void device_combine(const DeviceSource& source, std::uint64_t count, float* out, Stream stream);
// after = sent - received or before + received, by the memory; `sent` is device_combine()'s.
void device_remember(const DeviceSource& source, const float* sent, const float* received,
                     std::uint64_t count, Stream stream);
void device_deliver(const float* values, std::uint64_t count, const DeviceSink& sink,
                    Stream stream);
// Numbers rounded to `kind`, with the memory in the same pass, and back.
void device_narrow(const DeviceSource& source, std::uint64_t count, Dtype kind, std::byte* out,
                   Stream stream);
void device_widen(Dtype kind, const std::byte* in, std::uint64_t count, const DeviceSink& sink,
                  Stream stream);
// Sets *is_unsound when a number is not finite.
void device_check_finite(Dtype dtype, const std::byte* values, std::uint64_t count,
                         std::uint32_t* is_unsound, Stream stream);
// If *is_unsound, after = before (zeros if null): the message leaves no trace.
void device_settle(const std::uint32_t* is_unsound, const float* before, float* after,
                   std::uint64_t count, Stream stream);
void device_copy(const void* from, std::uint64_t bytes, void* to, Stream stream);
void device_clear(void* at, std::uint64_t bytes, Stream stream);
// Eight bytes that the host knows.
void device_put(std::uint64_t value, std::byte* out, Stream stream);

// --- quantise (quantise.cu, dequantise.cu, rotate.cu). Payloads are laid out as
// codec/quantise_layout.hpp says and begin at a multiple of 16 bytes.

std::uint64_t quantise_scratch_bytes(const Quantise& codec, const QuantiseLayout& layout);
void device_quantise(const Quantise& codec, const QuantiseLayout& layout,
                     const DeviceSource& source, std::uint64_t seed, std::byte* payload,
                     std::byte* scratch, Stream stream);
void device_dequantise(const Quantise& codec, const QuantiseLayout& layout,
                       const std::byte* payload, const DeviceSink& sink, Stream stream);
// Rotated. `seed` is what the payload begins with.
void device_rotate(const Quantise& codec, const QuantiseLayout& layout, const DeviceSource& source,
                   std::uint64_t seed, std::byte* payload, Stream stream);
void device_unrotate(const Quantise& codec, const QuantiseLayout& layout, std::uint64_t seed,
                     const std::byte* payload, const DeviceSink& sink, Stream stream);

// --- sign (sign.cu)

std::uint64_t sign_scratch_bytes(std::uint64_t count, std::uint64_t block);
void device_sign(const DeviceSource& source, std::uint64_t count, std::uint64_t block,
                 std::byte* scales, std::byte* signs, std::byte* scratch, Stream stream);
void device_unsign(const std::byte* scales, const std::byte* signs, std::uint64_t count,
                   std::uint64_t block, const DeviceSink& sink, Stream stream);

// --- sparse codecs (sparse.cu). Requires: count < 2^32.

std::uint64_t largest_scratch_bytes(std::uint64_t count, std::uint64_t k);
// The k largest by magnitude, in the order of their indices, as codec/largest.hpp.
void device_largest(const float* x, std::uint64_t count, std::uint64_t k, std::uint32_t* indices,
                    float* values, std::byte* scratch, Stream stream);
// out = 0, then out[indices[j]] = values[j].
void device_scatter(const std::uint32_t* indices, const float* values, std::uint64_t k, float* out,
                    std::uint64_t count, Stream stream);

std::uint64_t choice_scratch_bytes(std::uint64_t count);
// The kept values: as f32, or rounded to another type in the same pass.
struct ChoiceValues {
  Dtype dtype = Dtype::f32;
  void* at = nullptr;
  bool is_scaled = false;  // scatter: by this factor
  float factor = 1;
};
// values[j] = x[the j-th kept index], and the other way round with zeros elsewhere, as
// codec/choice.hpp. `head` gets the seed's eight bytes.
void device_gather_choice(const DeviceSource& source, std::uint64_t count, std::uint64_t k,
                          std::uint64_t seed, std::byte* head, const ChoiceValues& values,
                          std::byte* scratch, Stream stream);
void device_scatter_choice(const ChoiceValues& values, std::uint64_t count, std::uint64_t k,
                           std::uint64_t seed, float* out, std::byte* scratch, Stream stream);

// --- products with thin matrices (product.cu), as codec/kernel/matrix.hpp

std::uint64_t product_scratch_bytes(std::uint64_t rows, std::uint64_t columns, std::uint64_t r);
// y[n, r] = a[n, m] q[m, r]
void device_multiply(const float* a, std::uint64_t n, std::uint64_t m, const float* q,
                     std::uint64_t r, float* y, std::byte* scratch, Stream stream);
// q[m, r] = a[n, m]^T p[n, r]
void device_multiply_transposed(const float* a, std::uint64_t n, std::uint64_t m, const float* p,
                                std::uint64_t r, float* q, std::byte* scratch, Stream stream);
// p[n, r] q[m, r]^T
void device_multiply_factors(const float* p, std::uint64_t n, const float* q, std::uint64_t m,
                             std::uint64_t r, const DeviceSink& sink, Stream stream);
// out[columns, rows] = in[rows, columns]^T
void device_transpose(const float* in, std::uint64_t rows, std::uint64_t columns, float* out,
                      Stream stream);

// --- orthonormal columns (subspace.cu), as codec/subspace.hpp

std::uint64_t subspace_scratch_bytes(std::uint64_t rows, std::uint64_t r);
void device_orthonormalise(float* x, std::uint64_t rows, std::uint64_t r, std::byte* scratch,
                           Stream stream);
// If *has_start, x is the start; otherwise, or if it is not finite, all is drawn from the key.
void device_orthonormalise_start(float* x, std::uint64_t rows, std::uint64_t r, Key key,
                                 const std::uint32_t* has_start, std::byte* scratch, Stream stream);
// Sets *is_unsound when a number is not finite.
void device_check_finite(const float* x, std::uint64_t count, std::uint32_t* is_unsound,
                         Stream stream);
// *is_sound = whether nothing was found.
void device_tell_sound(const std::uint32_t* is_unsound, std::uint32_t* is_sound, Stream stream);
// Numbers as factors travel (codec/factor.hpp); *is_unsound is set when one is not finite.
void device_put_factors(Dtype dtype, const float* in, std::uint64_t count, std::byte* out,
                        std::uint32_t* is_unsound, Stream stream);
void device_get_factors(Dtype dtype, const std::byte* in, std::uint64_t count, float* out,
                        Stream stream);
// If *is_unsound, all are NaN.
void device_spoil_factors(Dtype dtype, const std::uint32_t* is_unsound, std::uint64_t count,
                          std::byte* out, Stream stream);
// Every number that is not finite becomes NaN.
void device_settle_factors(Dtype dtype, std::uint64_t count, std::byte* values, Stream stream);

}  // namespace laconic::kernel
