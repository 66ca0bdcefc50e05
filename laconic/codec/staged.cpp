#include <fmt/format.h>

#include <cstring>

#include "laconic/base/denormals.hpp"
#include "laconic/base/error.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/codec/device_codec.hpp"
#include "laconic/codec/index_code.hpp"
#include "laconic/codec/part.hpp"
#include "laconic/codec/staged_layout.hpp"

namespace laconic {

StagedTopK staged_layout(const TopK& codec, const TensorSpec& tensor) {
  StagedTopK layout;
  layout.elements = elements_of(tensor);
  layout.kept = kept_count(codec.kept, layout.elements);
  layout.values = value_tensor(tensor.dtype, layout.kept);
  if (layout.has_indices()) layout.values_at = (layout.kept * sizeof(std::uint32_t) + 15) / 16 * 16;
  layout.value_bytes = part::value_bytes(codec.values, layout.values);
  return layout;
}

namespace {

std::size_t unstage_top_k(const TopK& codec, const TensorSpec& tensor, ByteView staged,
                          std::byte* out) {
  const StagedTopK layout = staged_layout(codec, tensor);
  if (layout.kept == 0) return 0;
  IndexPlan plan;
  std::vector<std::uint64_t> indices;
  if (layout.has_indices()) {
    indices.resize(layout.kept);
    for (std::size_t i = 0; i < layout.kept; ++i) indices[i] = get<std::uint32_t>(staged, 4 * i);
    plan = plan_indices(indices, layout.elements);
    write_indices(plan, indices, out + kIndexHeader);
  }
  out[0] = static_cast<std::byte>(plan.method);
  out[1] = static_cast<std::byte>(plan.width);
  std::memcpy(out + kIndexHeader + plan.bytes, staged.data() + layout.values_at,
              layout.value_bytes);
  return kIndexHeader + plan.bytes + layout.value_bytes;
}

void stage_top_k(const TopK& codec, const TensorSpec& tensor, ByteView payload,
                 std::span<std::byte> staged) {
  const StagedTopK layout = staged_layout(codec, tensor);
  if (layout.kept == 0) return;
  const std::size_t index_bytes = payload.size() - kIndexHeader - layout.value_bytes;
  if (layout.has_indices()) {
    const IndexPlan plan{static_cast<IndexMethod>(payload[0]),
                         std::to_integer<std::uint8_t>(payload[1]), index_bytes};
    std::vector<std::uint32_t> indices(layout.kept);
    read_indices(plan, payload.subspan(kIndexHeader, index_bytes), layout.elements, layout.kept,
                 indices.data());
    std::memcpy(staged.data(), indices.data(), layout.kept * sizeof(std::uint32_t));
  }
  std::memcpy(staged.data() + layout.values_at, payload.data() + kIndexHeader + index_bytes,
              layout.value_bytes);
}

// Rounding numbers once more changes nothing, so the codec may begin with them.
std::size_t unstage_huffman(const Huffman& codec, const TensorSpec& tensor, ByteView staged,
                            std::byte* out) {
  const std::size_t count = elements_of(tensor);
  Scratch<float> floats(count);
  widen_bytes(codec.kind, staged.data(), count, floats.data());
  return part::encode(codec, tensor, floats.data(), {}, out);
}

void stage_huffman(const Huffman& codec, const TensorSpec& tensor, ByteView payload,
                   std::span<std::byte> staged) {
  const std::size_t count = elements_of(tensor);
  Scratch<float> floats(count);
  part::decode(codec, tensor, payload, {}, floats.data());
  narrow_bytes(codec.kind, floats.data(), count, staged.data());
}

bool has_powers(const CodecSpec& codec) {
  const Quantise* quantise = std::get_if<Quantise>(&codec);
  if (const auto* c = std::get_if<TopK>(&codec)) quantise = std::get_if<Quantise>(&c->values);
  if (const auto* c = std::get_if<RandomK>(&codec)) quantise = std::get_if<Quantise>(&c->values);
  return quantise != nullptr && quantise->grid == Grid::powers;
}

}  // namespace

Problems check_device(const CodecSpec& codec, const TensorSpec& tensor) {
  Problems problems;
  const bool is_sparse =
      std::holds_alternative<TopK>(codec) || std::holds_alternative<RandomK>(codec);
  const std::uint64_t elements = elements_of(tensor);
  if (is_sparse && elements >= std::uint64_t{1} << 32)
    problems.push_back({std::string(name_of(codec)),
                        fmt::format("{} elements: on a GPU at most 2^32 - 1", elements)});
  if (std::holds_alternative<Transform>(codec))
    problems.push_back({"transform", "its basis is in the host's memory"});
  if (has_powers(codec))
    problems.push_back({"quantise.grid", "grid=powers has kernels for processors alone"});
  return problems;
}

std::uint64_t staged_bytes(const CodecSpec& codec, const TensorSpec& tensor) {
  if (const auto* top_k = std::get_if<TopK>(&codec)) return staged_layout(*top_k, tensor).bytes();
  if (const auto* huffman = std::get_if<Huffman>(&codec))
    return elements_of(tensor) * bytes_of(huffman->kind);
  return max_payload_bytes(codec, tensor);
}

std::uint64_t payload_seed(const CodecSpec& codec, ByteView payload) {
  const auto* quantise = std::get_if<Quantise>(&codec);
  const bool has_seed =
      quantise != nullptr ? quantise->rotate : std::holds_alternative<RandomK>(codec);
  return has_seed && payload.size() >= 8 ? get<std::uint64_t>(payload, 0) : 0;
}

std::size_t unstage(const CodecSpec& codec, const TensorSpec& tensor, ByteView staged,
                    std::span<std::byte> out) {
  const ScopedDenormals flush(true);
  if (const auto* top_k = std::get_if<TopK>(&codec))
    return unstage_top_k(*top_k, tensor, staged, out.data());
  if (const auto* huffman = std::get_if<Huffman>(&codec))
    return unstage_huffman(*huffman, tensor, staged, out.data());
  if (!staged.empty() && out.data() != staged.data())
    std::memcpy(out.data(), staged.data(), staged.size());
  return staged.size();
}

void stage(const CodecSpec& codec, const TensorSpec& tensor, ByteView payload,
           std::span<std::byte> staged) {
  const ScopedDenormals flush(true);
  if (const auto* top_k = std::get_if<TopK>(&codec))
    return stage_top_k(*top_k, tensor, payload, staged);
  if (const auto* huffman = std::get_if<Huffman>(&codec))
    return stage_huffman(*huffman, tensor, payload, staged);
  if (!payload.empty()) std::memcpy(staged.data(), payload.data(), payload.size());
}

}  // namespace laconic
