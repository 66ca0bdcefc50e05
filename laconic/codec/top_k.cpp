#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/codec/index_code.hpp"
#include "laconic/codec/largest.hpp"
#include "laconic/codec/part.hpp"

namespace laconic::part {

namespace {

struct TopKLayout {
  std::uint64_t elements, kept;
  TensorSpec values;
  std::uint64_t value_bytes;
};

TopKLayout layout_of(const TopK& codec, const TensorSpec& tensor) {
  const std::uint64_t elements = elements_of(tensor);
  const std::uint64_t kept = kept_count(codec.kept, elements);
  TensorSpec values = value_tensor(tensor.dtype, kept);
  const std::uint64_t bytes = value_bytes(codec.values, values);
  return {elements, kept, std::move(values), bytes};
}

void put_header(const IndexPlan& plan, std::byte* out) {
  out[0] = static_cast<std::byte>(plan.method);
  out[1] = static_cast<std::byte>(plan.width);
}

// A payload as its three parts. Throws if it cannot have them.
struct Parts {
  ByteView header, indices, values;
};

Parts split(const TopKLayout& layout, ByteView payload) {
  if (payload.size() < kIndexHeader + layout.value_bytes)
    throw WireError(
        0, "payload",
        fmt::format("{} bytes, and the values alone take {}", payload.size(), layout.value_bytes));
  const std::size_t index_bytes = payload.size() - kIndexHeader - layout.value_bytes;
  return {payload.first(kIndexHeader), payload.subspan(kIndexHeader, index_bytes),
          payload.subspan(kIndexHeader + index_bytes)};
}

IndexPlan plan_of(const Parts& parts) {
  return {static_cast<IndexMethod>(parts.header[0]), std::to_integer<std::uint8_t>(parts.header[1]),
          parts.indices.size()};
}

// When all are kept there is nothing to say about indices.
void check_no_indices(const Parts& parts) {
  for (const std::size_t i : {0, 1})
    if (parts.header[i] != std::byte{0})
      throw WireError(i, i == 0 ? "payload.method" : "payload.width",
                      "not 0 though all elements are kept");
  if (!parts.indices.empty())
    throw WireError(kIndexHeader, "payload.indices", "present though all elements are kept");
}

std::string meaning_of(const IndexPlan& plan, const TopKLayout& layout) {
  switch (plan.method) {
    case IndexMethod::bitmap: return fmt::format("bitmap of {} elements", layout.elements);
    case IndexMethod::fixed: return fmt::format("{} of {} bits", layout.kept, plan.width);
    case IndexMethod::gaps:
      return fmt::format("{} gaps, Rice code with {} low bits", layout.kept, plan.width);
  }
  return "";
}

}  // namespace

std::size_t encode(const TopK& codec, const TensorSpec& tensor, const float* x,
                   const CodecInput& input, std::byte* out) {
  const TopKLayout layout = layout_of(codec, tensor);
  if (layout.kept == 0) return 0;
  if (layout.kept == layout.elements) {
    put_header({}, out);
    return kIndexHeader + encode_values(codec.values, layout.values, x, input, out + kIndexHeader);
  }
  const Largest kept = largest(x, layout.elements, layout.kept);
  const IndexPlan plan = plan_indices(kept.index, layout.elements);
  put_header(plan, out);
  write_indices(plan, kept.index, out + kIndexHeader);
  std::byte* values = out + kIndexHeader + plan.bytes;
  return kIndexHeader + plan.bytes +
         encode_values(codec.values, layout.values, kept.value.data(), input, values);
}

void check_payload(const TopK& codec, const TensorSpec& tensor, ByteView payload) {
  const TopKLayout layout = layout_of(codec, tensor);
  if (layout.kept == 0) {
    if (!payload.empty())
      throw WireError(0, "payload", fmt::format("{} bytes instead of none", payload.size()));
    return;
  }
  const Parts parts = split(layout, payload);
  if (layout.kept == layout.elements)
    check_no_indices(parts);
  else
    check_indices(parts.header, parts.indices, layout.elements, layout.kept);
  check_values(codec.values, layout.values, parts.values, payload.size() - parts.values.size());
}

void decode(const TopK& codec, const TensorSpec& tensor, ByteView payload, const CodecInput& input,
            float* out) {
  const TopKLayout layout = layout_of(codec, tensor);
  if (layout.kept == 0) return;
  const Parts parts = split(layout, payload);
  if (layout.kept == layout.elements)
    return decode_values(codec.values, layout.values, parts.values, input, out);
  Scratch<float> values(layout.kept);
  decode_values(codec.values, layout.values, parts.values, input, values.data());
  std::fill(out, out + layout.elements, 0.0f);
  scatter(plan_of(parts), parts.indices, layout.elements, layout.kept, values.data(), out);
}

void kept_factors(const TopK& codec, const TensorSpec& tensor, ByteView payload, float* out) {
  const TopKLayout layout = layout_of(codec, tensor);
  std::fill(out, out + layout.elements, layout.kept == layout.elements ? 1.0F : 0.0F);
  if (layout.kept == 0 || layout.kept == layout.elements) return;
  const Parts parts = split(layout, payload);
  const std::vector<float> ones(layout.kept, 1.0F);
  scatter(plan_of(parts), parts.indices, layout.elements, layout.kept, ones.data(), out);
}

std::vector<Section> sections(const TopK& codec, const TensorSpec& tensor, ByteView payload) {
  const TopKLayout layout = layout_of(codec, tensor);
  if (layout.kept == 0) return {};
  const Parts parts = split(layout, payload);
  std::vector<Section> all = {{"method", 0, 1, "0 bitmap, 1 fixed, 2 gaps"},
                              {"width", 1, 1, "bits of an index, or low bits of a gap"}};
  if (layout.kept < layout.elements)
    all.push_back(
        {"indices", kIndexHeader, parts.indices.size(), meaning_of(plan_of(parts), layout)});
  const std::size_t base = payload.size() - parts.values.size();
  for (Section& section : value_sections(codec.values, layout.values, parts.values, base))
    all.push_back(std::move(section));
  return all;
}

}  // namespace laconic::part
