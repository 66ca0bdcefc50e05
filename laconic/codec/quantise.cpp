#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/codec/kernel/hadamard.hpp"
#include "laconic/codec/kernel/level.hpp"
#include "laconic/codec/kernel/pack.hpp"
#include "laconic/codec/part.hpp"
#include "laconic/codec/quantise_layout.hpp"
#include "laconic/codec/scale.hpp"

// Both ways the work goes tile by tile: codes wait, one per byte, until there is a tile of them, a
// number that ends on a byte whatever the bits, so groups of any size can follow each other. What
// goes to the caller's memory (decoded values, or the memory of a link) waits alike: a tile is long
// enough to be written past the cache, and short enough to stay in the nearest one until then.

namespace laconic::part {

namespace {

using kernel::Memory;
using kernel::RunLevels;
using kernel::Sink;
using kernel::Source;

constexpr std::size_t kTile = 1024;  // elements; with two memories beside it this fits the L1 cache
constexpr std::size_t kMaxTile = 4096;  // where rotated blocks are longer
constexpr std::size_t kRoom = kMaxTile + kernel::kSlack;
constexpr std::uint64_t kStreamBytes = 4 << 20;  // above this, writing past the cache pays
constexpr std::uint64_t kRotationStream = 1, kRoundingStream = 2;

std::size_t tile_of(const Quantise& codec) {
  return codec.rotate ? std::max(kTile, static_cast<std::size_t>(codec.block)) : kTile;
}

// Where `to` and `from` are the same memory its lines are in the cache already.
bool is_stream(std::uint64_t elements, const float* from, const float* to) {
  return elements * sizeof(float) > kStreamBytes && from != to;
}

// The rotation of blocks, with signs drawn for several at a time.
class Rotation {
 public:
  explicit Rotation(std::uint64_t seed) : key_(derive(key_of(seed), kRotationStream)) {}

  // Until the next call. Requires: size <= kMaxTile.
  Source rotated(const float* x, std::uint64_t begin, std::size_t size, std::size_t block) {
    for (std::size_t i = 0; i < size; i += block)
      kernel::hadamard().rotate(x + begin + i, std::min(block, size - i), signs(begin + i),
                                rotated_ + i);
    return {Memory::none, rotated_, nullptr};
  }
  void undo(float* values, std::uint64_t begin, std::size_t size, std::size_t block) {
    for (std::size_t i = 0; i < size; i += block)
      kernel::hadamard().unrotate(values + i, std::min(block, size - i), signs(begin + i));
  }

 private:
  kernel::SignBits signs(std::uint64_t element) {
    const std::uint64_t part = element / kMaxTile;
    if (part != part_) fill_words(key_, part * (kMaxTile / 32), words_);
    part_ = part;
    return {words_, element % kMaxTile};
  }

  Key key_;
  std::uint64_t part_ = std::numeric_limits<std::uint64_t>::max();
  std::uint32_t words_[kMaxTile / 32];
  alignas(64) float rotated_[kMaxTile];
};

// The levels of all channels, side by side; a row of few columns is repeated to make runs longer.
class ChannelLevels {
 public:
  explicit ChannelLevels(std::uint64_t columns)
      : columns_(columns),
        run_(columns * std::max<std::uint64_t>(1, kShortRun / columns)),
        factors_(run_ + kernel::kSlack),
        steps_(run_ + kernel::kSlack),
        middles_(run_ + kernel::kSlack) {}

  std::uint64_t run() const { return run_; }
  RunLevels levels() const {
    return {nullptr, 0, 0, factors_.data(), steps_.data(), middles_.data()};
  }
  void set(const std::vector<Level>& levels) {
    for (std::uint64_t i = 0; i < run_; ++i) {
      const Level& level = levels[i % columns_];
      factors_[i] = level.encode_factor;
      steps_[i] = level.step;
      middles_[i] = level.middle;
    }
  }

 private:
  static constexpr std::uint64_t kShortRun = 512;
  std::uint64_t columns_, run_;
  std::vector<float> factors_, steps_, middles_;
};

// --- encode

// Quantises runs that follow each other without gaps, from element 0 on, and packs them.
class CodeWriter {
 public:
  CodeWriter(const Quantise& codec, std::uint64_t elements, std::uint64_t seed, std::byte* out,
             float* after, bool is_after_stream)
      : codec_(codec),
        tile_(tile_of(codec)),
        elements_(elements),
        key_(derive(key_of(seed), kRoundingStream)),
        out_(out),
        sink_{nullptr, nullptr, after, is_after_stream} {}

  void write(Source source, std::uint64_t size, RunLevels levels) {
    while (size > 0) {
      if (fill_ == 0 && is_stochastic()) draw_noise();
      const std::size_t part = std::min<std::uint64_t>(size, tile_ - fill_);
      kernel_.quantise({codec_.bits, codec_.grid, source, part,
                        is_stochastic() ? noise_ + fill_ : nullptr, levels, codes_ + fill_,
                        after_ + fill_});
      source = source.later(part);
      levels = levels.later(part);
      size -= part;
      fill_ += part;
      if (fill_ == tile_) flush();
    }
  }

  void finish() {
    flush();
    if (sink_.is_stream) hwy::FlushStream();
  }

 private:
  bool is_stochastic() const { return codec_.rounding == Rounding::stochastic; }

  void draw_noise() {
    const std::uint64_t left = elements_ - done_;
    kernel_.fill_noise(key_, done_, std::min<std::uint64_t>(left, tile_), noise_);
  }

  void flush() {
    if (fill_ == 0) return;
    kernel::pack().pack(codes_, fill_, codec_.bits, out_);
    out_ += fill_ * static_cast<unsigned>(codec_.bits) / 8;
    if (sink_.out != nullptr) kernel_.deliver(after_, fill_, sink_.later(done_));
    done_ += fill_;
    fill_ = 0;
  }

  const kernel::QuantiseKernel& kernel_ = kernel::quantise_kernel();
  const Quantise& codec_;
  std::size_t tile_;
  std::uint64_t elements_;
  Key key_;
  std::byte* out_;
  Sink sink_;
  std::uint64_t done_ = 0;
  std::size_t fill_ = 0;
  alignas(64) std::uint8_t codes_[kRoom];
  alignas(64) float after_[kRoom];
  alignas(64) float noise_[kRoom];
};

// Many groups at a time, so that the processor need not wait for the scale of one before it looks
// at the next: as many as fit a tile, or one that is larger.
void encode_runs(const Quantise& codec, const QuantiseLayout& layout, const Source& source,
                 std::uint64_t seed, std::byte* scales, CodeWriter& writer) {
  const std::uint64_t batch = std::max(layout.run, kTile / layout.run * layout.run);
  Extremes extremes[kTile];
  Level levels[kTile];
  Rotation rotation(seed);
  for (std::uint64_t begin = 0; begin < layout.elements; begin += batch) {
    const std::uint64_t size = std::min(batch, layout.elements - begin);
    const std::size_t groups = (size - 1) / layout.run + 1;
    const Source run =
        codec.rotate ? rotation.rotated(source.x, begin, size, layout.run) : source.later(begin);
    kernel::quantise_kernel().extremes(run, size, layout.run, extremes);
    store_scales(codec, extremes, groups, scales, levels);
    scales += groups * scale_bytes(codec.scale);
    writer.write(run, size, {levels, layout.run});
  }
}

std::vector<Extremes> channel_extremes(const QuantiseLayout& layout, std::uint64_t run,
                                       const Source& source) {
  std::vector<std::int32_t> magnitudes(run + kernel::kSlack, 0);
  std::vector<std::int32_t> highests(run + kernel::kSlack,
                                     std::numeric_limits<std::int32_t>::min());
  for (std::uint64_t begin = 0; begin < layout.elements; begin += run)
    kernel::quantise_kernel().raise_extremes(source.later(begin),
                                             std::min(run, layout.elements - begin),
                                             magnitudes.data(), highests.data());
  std::vector<Extremes> extremes(layout.groups,
                                 Extremes{0, std::numeric_limits<std::int32_t>::min()});
  for (std::uint64_t i = 0; i < run; ++i) {
    Extremes& channel = extremes[i % layout.run];
    channel.magnitude = std::max(channel.magnitude, magnitudes[i]);
    channel.highest = std::max(channel.highest, highests[i]);
  }
  return extremes;
}

void encode_channels(const Quantise& codec, const QuantiseLayout& layout, const Source& source,
                     std::byte* scales, CodeWriter& writer) {
  ChannelLevels channels(layout.run);
  const std::uint64_t run = channels.run();
  const std::vector<Extremes> extremes = channel_extremes(layout, run, source);
  std::vector<Level> levels(layout.groups);
  store_scales(codec, extremes.data(), layout.groups, scales, levels.data());
  channels.set(levels);
  for (std::uint64_t begin = 0; begin < layout.elements; begin += run)
    writer.write(source.later(begin), std::min(run, layout.elements - begin), channels.levels());
}

std::size_t encode_source(const Quantise& codec, const TensorSpec& tensor, const Source& source,
                          float* after, const CodecInput& input, std::byte* out) {
  const QuantiseLayout layout = layout_of(codec, tensor);
  if (codec.rotate) std::memcpy(out, &input.seed, sizeof input.seed);
  if (layout.elements == 0) return layout.bytes;
  CodeWriter writer(codec, layout.elements, input.seed, out + layout.codes_at, after,
                    is_stream(layout.elements, source.before, after));
  std::byte* scales = out + layout.scales_at;
  if (codec.group == ScaleGroup::channel)
    encode_channels(codec, layout, source, scales, writer);
  else
    encode_runs(codec, layout, source, input.seed, scales, writer);
  writer.finish();
  return layout.bytes;
}

// --- decode

// Makes decoded values, tile by tile.
class TileReader {
 public:
  TileReader(const Quantise& codec, const QuantiseLayout& layout, ByteView payload)
      : codec_(codec),
        layout_(layout),
        payload_(payload),
        channels_(codec.group == ScaleGroup::channel ? layout.run : 1),
        rotation_(codec.rotate ? get<std::uint64_t>(payload, 0) : 0) {
    if (codec.group != ScaleGroup::channel) return;
    std::vector<Level> levels(layout.groups);
    load_levels(codec, payload.data() + layout.scales_at, layout.groups, levels.data());
    channels_.set(levels);
  }

  // Until the next call. Requires: begin is a multiple of tile_of(codec), size at most that.
  const float* read(std::uint64_t begin, std::size_t size) {
    const auto bits = static_cast<unsigned>(codec_.bits);
    kernel::pack().unpack(payload_.data() + layout_.codes_at + begin * bits / 8, size, codec_.bits,
                          codes_);
    if (codec_.group == ScaleGroup::channel)
      read_rows(begin, size);
    else
      read_groups(begin, size);
    if (codec_.rotate) rotation_.undo(values_, begin, size, layout_.run);
    return values_;
  }

 private:
  void read_groups(std::uint64_t begin, std::size_t size) {
    const std::uint64_t first = begin / layout_.run, last = (begin + size - 1) / layout_.run;
    load_levels(codec_, payload_.data() + layout_.scales_at + first * scale_bytes(codec_.scale),
                last - first + 1, levels_);
    dequantise_(codes_, size, {levels_, layout_.run, begin % layout_.run}, values_);
  }

  void read_rows(std::uint64_t begin, std::size_t size) {
    for (std::size_t i = 0; i < size;) {
      const std::uint64_t within = (begin + i) % channels_.run();
      const std::size_t part = std::min<std::uint64_t>(size - i, channels_.run() - within);
      dequantise_(codes_ + i, part, channels_.levels().later(within), values_ + i);
      i += part;
    }
  }

  const Quantise& codec_;
  decltype(kernel::QuantiseKernel::dequantise) dequantise_ =
      codec_.grid == Grid::powers ? kernel::quantise_kernel().dequantise_powers
                                  : kernel::quantise_kernel().dequantise;
  const QuantiseLayout& layout_;
  ByteView payload_;
  ChannelLevels channels_;
  Rotation rotation_;
  Level levels_[kTile + 1];  // one per group that a tile meets; rotated ones are not that short
  alignas(64) std::uint8_t codes_[kRoom];
  alignas(64) float values_[kRoom];
};

void decode_to(const Quantise& codec, const TensorSpec& tensor, ByteView payload,
               const Sink& sink) {
  const QuantiseLayout layout = layout_of(codec, tensor);
  if (layout.elements == 0) return;
  TileReader reader(codec, layout, payload);
  const std::size_t tile = tile_of(codec);
  for (std::uint64_t begin = 0; begin < layout.elements; begin += tile) {
    const std::size_t size = std::min<std::uint64_t>(tile, layout.elements - begin);
    kernel::quantise_kernel().deliver(reader.read(begin, size), size, sink.later(begin));
  }
  if (sink.is_stream) hwy::FlushStream();
}

}  // namespace

std::size_t encode(const Quantise& codec, const TensorSpec& tensor, const float* x,
                   const CodecInput& input, std::byte* out) {
  return encode_source(codec, tensor, {Memory::none, x, nullptr}, nullptr, input, out);
}

void decode(const Quantise& codec, const TensorSpec& tensor, ByteView payload, const CodecInput&,
            float* out) {
  decode_to(codec, tensor, payload,
            {nullptr, nullptr, out, is_stream(elements_of(tensor), nullptr, out)});
}

bool is_fusable(const Quantise& codec) {
  return !codec.rotate;  // the memory is not rotated, what is quantised is
}

std::size_t encode_with_feedback(const Quantise& codec, const TensorSpec& tensor, const float* x,
                                 const float* before, float* after, const CodecInput& input,
                                 std::byte* out) {
  return encode_source(codec, tensor, {Memory::feedback, x, before}, after, input, out);
}

std::size_t encode_difference(const Quantise& codec, const TensorSpec& tensor, const float* x,
                              const float* before, float* after, const CodecInput& input,
                              std::byte* out) {
  return encode_source(codec, tensor, {Memory::difference, x, before}, after, input, out);
}

void decode_difference(const Quantise& codec, const TensorSpec& tensor, ByteView payload,
                       const float* before, float* after, const CodecInput&, float* out) {
  decode_to(codec, tensor, payload,
            {before, after, out, is_stream(elements_of(tensor), before, after)});
}

}  // namespace laconic::part
