#include "laconic/codec/quantise_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "laconic/base/error.hpp"
#include "laconic/codec/kernel/pack.hpp"
#include "laconic/codec/part.hpp"
#include "laconic/codec/scale.hpp"

namespace laconic {

QuantiseLayout layout_of(const Quantise& codec, const TensorSpec& tensor) {
  QuantiseLayout layout;
  layout.elements = elements_of(tensor);
  layout.groups = scale_count(codec, tensor);
  layout.run = codec.group == ScaleGroup::block ? static_cast<std::uint64_t>(codec.block)
                                                : matrix_shape(tensor).columns;
  layout.run = std::max<std::uint64_t>(layout.run, 1);  // an empty tensor may have no columns
  layout.scales_at = codec.rotate ? sizeof(std::uint64_t) : 0;
  layout.codes_at = layout.scales_at + layout.groups * scale_bytes(codec.scale);
  layout.bytes = max_payload_bytes(codec, tensor);
  return layout;
}

namespace {

constexpr std::uint64_t kChunkCodes = 512;  // codes compared at once, at most

// Finds codes that are not what a dead group has.
class DeadCodes {
 public:
  DeadCodes(const Quantise& codec, const QuantiseLayout& layout, ByteView payload)
      : bits_(static_cast<unsigned>(codec.bits)),
        dead_(dead_code(codec)),
        codes_at_(layout.codes_at),
        codes_(payload.subspan(layout.codes_at)) {
    std::array<std::uint8_t, kChunkCodes> dead;
    dead.fill(dead_);
    kernel::pack().pack(dead.data(), kChunkCodes, codec.bits, chunk_.data());
  }

  void check_one(std::uint64_t element, std::uint64_t group) const {
    if (code_at(element) == dead_) return;
    throw WireError(codes_at_ + element * bits_ / 8, "payload.code",
                    fmt::format("element {} has the code {}, but all of group {}, whose scale is "
                                "zero or NaN, have {}",
                                element, code_at(element), group, dead_));
  }

  void check_run(std::uint64_t begin, std::uint64_t end, std::uint64_t group) const {
    while (begin < end) {
      // Eights of codes lie in whole bytes and can be compared at once.
      const std::uint64_t eights = begin % 8 == 0 ? std::min(end - begin, kChunkCodes) / 8 : 0;
      const std::byte* at = codes_.data() + begin * bits_ / 8;
      if (eights > 0 && std::memcmp(at, chunk_.data(), eights * bits_) == 0)
        begin += 8 * eights;
      else
        check_one(begin++, group);
    }
  }

 private:
  unsigned code_at(std::uint64_t element) const {
    unsigned code = 0;
    for (std::uint64_t i = element * bits_; i < (element + 1) * bits_; ++i)
      code = 2 * code + (std::to_integer<unsigned>(codes_[i / 8]) >> (7 - i % 8) & 1);
    return code;
  }

  unsigned bits_;
  std::uint8_t dead_;
  std::size_t codes_at_;
  ByteView codes_;
  std::array<std::byte, kChunkCodes> chunk_;
};

bool is_dead(float scale) {
  return scale == 0 || scale != scale;
}

// Throws unless every scale is one that an encoder writes; returns how many are zero or NaN.
std::uint64_t check_scales(const Quantise& codec, const QuantiseLayout& layout, ByteView payload) {
  const std::size_t step = scale_bytes(codec.scale);
  std::uint64_t dead = 0;
  for (std::uint64_t group = 0; group < layout.groups; ++group) {
    const std::size_t offset = layout.scales_at + group * step;
    const std::byte* at = payload.data() + offset;
    if (const char* why = refuse_scale(codec, at))
      throw WireError(offset, "payload.scale", fmt::format("that of group {} is {}", group, why));
    if (is_dead(load_scale(codec.scale, at))) ++dead;
  }
  return dead;
}

void check_dead_groups(const Quantise& codec, const QuantiseLayout& layout, ByteView payload) {
  const DeadCodes codes(codec, layout, payload);
  const std::size_t step = scale_bytes(codec.scale);
  for (std::uint64_t group = 0; group < layout.groups; ++group) {
    if (!is_dead(load_scale(codec.scale, payload.data() + layout.scales_at + group * step)))
      continue;
    if (codec.group == ScaleGroup::channel)
      for (std::uint64_t i = group; i < layout.elements; i += layout.run) codes.check_one(i, group);
    else
      codes.check_run(group * layout.run, std::min((group + 1) * layout.run, layout.elements),
                      group);
  }
}

void check_padding(const Quantise& codec, const QuantiseLayout& layout, ByteView payload) {
  const auto used = static_cast<unsigned>(layout.elements % 8 * static_cast<unsigned>(codec.bits));
  if (used % 8 == 0) return;
  const unsigned padding = std::to_integer<unsigned>(payload.back()) & (0xFFu >> used % 8);
  if (padding != 0)
    throw WireError(payload.size() - 1, "payload.padding",
                    fmt::format("the last {} bits are {:x}, not zero", 8 - used % 8, padding));
}

std::string group_text(const Quantise& codec) {
  switch (codec.group) {
    case ScaleGroup::block: return fmt::format("block of {}", codec.block);
    case ScaleGroup::row: return "row";
    case ScaleGroup::channel: return "channel";
  }
  return "";
}

}  // namespace

void part::check_payload(const Quantise& codec, const TensorSpec& tensor, ByteView payload) {
  const QuantiseLayout layout = layout_of(codec, tensor);
  if (payload.size() != layout.bytes)
    throw WireError(0, "payload",
                    fmt::format("{} bytes instead of {}", payload.size(), layout.bytes));
  const std::uint64_t dead = check_scales(codec, layout, payload);
  check_padding(codec, layout, payload);
  if (dead == layout.groups && codec.group == ScaleGroup::channel)
    return DeadCodes(codec, layout, payload).check_run(0, layout.elements, 0);
  if (dead > 0) check_dead_groups(codec, layout, payload);
}

std::vector<Section> part::sections(const Quantise& codec, const TensorSpec& tensor, ByteView) {
  const QuantiseLayout layout = layout_of(codec, tensor);
  constexpr const char* kTypes[] = {"f32", "f16", "exponents of 2"};
  std::vector<Section> sections;
  if (codec.rotate) sections.push_back({"seed", 0, layout.scales_at, "u64, of the rotation"});
  sections.push_back(
      {"scales", layout.scales_at, layout.codes_at - layout.scales_at,
       fmt::format("{} {}, one per {}", layout.groups,
                   kTypes[static_cast<std::size_t>(codec.scale)], group_text(codec))});
  sections.push_back({"codes", layout.codes_at, layout.bytes - layout.codes_at,
                      fmt::format("{} of {} bits", layout.elements, codec.bits)});
  return sections;
}

}  // namespace laconic
