// codec/kernel/level.hpp — the loops of the quantise codec, on runs of elements.
//
// A run is any number of consecutive elements: groups, parts of them, or (kind
// channel) rows across all groups. The loops know nothing of bits: codes are
// one per byte, kernel/pack.hpp does the rest. Scratch that only the codec sees
// (codes, noise, levels per element, values before they are delivered) needs
// room for kSlack elements more than the run is long, which may be read and
// overwritten; the caller's tensors are touched exactly. All of them call for
// flushed denormals, as all codecs do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "laconic/base/philox.hpp"
#include "laconic/codec/scale.hpp"
#include "laconic/codec/spec.hpp"

namespace laconic::kernel {

inline constexpr std::size_t kSlack = 64;

// What is quantised, and what is remembered of it.
enum class Memory : std::uint8_t {
  none,        // x
  feedback,    // x + before; after = (x + before) - decoded
  difference,  // x - before; after = before + decoded
};

struct Source {
  Memory memory = Memory::none;
  const float* x = nullptr;
  const float* before = nullptr;  // unused without memory
  Source later(std::size_t by) const {
    return {memory, x + by, before == nullptr ? nullptr : before + by};
  }
};

// The levels of a run: one per `group` elements, the first of which holds for `group - used` only;
// or one per element.
struct RunLevels {
  const Level* groups = nullptr;
  std::size_t group = 0;
  std::size_t used = 0;
  const float* encode_factors = nullptr;  // these three when `groups` is null
  const float* steps = nullptr;
  const float* middles = nullptr;

  RunLevels later(std::size_t by) const {
    if (groups == nullptr) return {nullptr, 0, 0, encode_factors + by, steps + by, middles + by};
    return {groups + (used + by) / group, group, (used + by) % group};
  }
};

struct QuantiseRun {
  int bits = 8;
  Grid grid = Grid::tread;
  Source source;
  std::size_t size = 0;
  const float* noise = nullptr;  // in [0, 1), added before rounding down; null: round to nearest
  RunLevels levels;
  std::uint8_t* codes = nullptr;
  float* after = nullptr;  // scratch; unused without memory
};

// What decoded values are added to, and where they go. Without `before`: to `out` only. `after` may
// be `before`.
struct Sink {
  const float* before = nullptr;
  float* after = nullptr;
  float* out = nullptr;    // may be null with `before`
  bool is_stream = false;  // past the cache, for what is larger than it
  Sink later(std::size_t by) const {
    const auto moved = [&](auto* p) { return p == nullptr ? p : p + by; };
    return {moved(before), moved(after), moved(out), is_stream};
  }
};

struct QuantiseKernel {
  // Finds the extremes of every `group` elements; the last group may be smaller.
  void (*extremes)(Source source, std::size_t size, std::size_t group, Extremes* out);
  // Element by element: those of the source, where they are larger than what is there.
  void (*raise_extremes)(Source source, std::size_t size, std::int32_t* magnitudes,
                         std::int32_t* highests);
  void (*quantise)(const QuantiseRun& run);
  void (*dequantise)(const std::uint8_t* codes, std::size_t size, const RunLevels& levels,
                     float* out);
  // The same of the grid powers.
  void (*dequantise_powers)(const std::uint8_t* codes, std::size_t size, const RunLevels& levels,
                            float* out);
  // out[j] = floor((word first + j) / 2^8) * 2^-24. Requires: first is a multiple of 4.
  void (*fill_noise)(Key key, std::uint64_t first, std::size_t size, float* out);
  void (*deliver)(const float* values, std::size_t size, const Sink& sink);
};

const QuantiseKernel& quantise_kernel();

}  // namespace laconic::kernel
