// Quantise, not rotated: which kernels a task gets. The first way that takes it:
//
//   quantise_groups.cu  small groups, and with a memory the largest
//   quantise_eights.cu  bf16 as it mostly is
//   quantise_teams.cu   all other groups of up to 8192 elements that are whole eights
//   quantise_strips.cu  channels, rows being whole eights
//   quantise_any.cu     anything
//
// Decoding is dequantise.cu's, and rotated blocks are rotate.cu's.
#include "laconic/codec/kernel/quantise_task.cuh"

namespace laconic::kernel {

namespace {

QuantiseTask task_of(const Quantise& codec, const QuantiseLayout& layout,
                     const DeviceSource& source, std::uint64_t seed, std::byte* payload) {
  constexpr std::uint64_t kRoundingStream = 2;
  const exact::Rule rule = exact::rule_of(codec);
  const std::uint32_t radix = 1u << codec.bits;
  return {codec,
          rule,
          derive(key_of(seed), kRoundingStream),
          1 / rule.half,
          radix,
          exact::bits_of(exact::kToInteger) * (((radix + 1) * radix + 1) * radix + 1),
          layout.elements,
          layout.groups,
          layout.run,
          source,
          is_aligned(source),
          payload + layout.scales_at,
          CodeStream(codec.bits, payload + layout.codes_at)};
}

}  // namespace

std::uint64_t quantise_scratch_bytes(const Quantise&, const QuantiseLayout& layout) {
  return layout.groups * (sizeof(Extremes) + sizeof(Level));
}

void device_quantise(const Quantise& codec, const QuantiseLayout& layout,
                     const DeviceSource& source, std::uint64_t seed, std::byte* payload,
                     std::byte* scratch, Stream stream) {
  if (layout.elements == 0) return;
  const QuantiseTask task = task_of(codec, layout, source, seed, payload);
  if (is_for_registers(task) &&
      (quantise_by_groups(task, stream) || quantise_by_eights(task, stream) ||
       quantise_by_teams(task, stream)))
    return;
  auto* extremes = reinterpret_cast<Extremes*>(scratch);
  auto* levels = reinterpret_cast<Level*>(scratch + task.groups * sizeof(Extremes));
  if (!quantise_by_strips(task, extremes, stream))
    quantise_by_passes(task, extremes, levels, stream);
}

}  // namespace laconic::kernel
