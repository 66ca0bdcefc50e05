#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/codec/kernel/hadamard.hpp"
#include "laconic/codec/kernel/pack.hpp"
#include "laconic/codec/kernel/quantise.hpp"
#include "laconic/codec/part.hpp"
#include "laconic/codec/quantise_layout.hpp"
#include "laconic/codec/scale.hpp"

// Both ways the work goes tile by tile: codes wait, one per byte, until there are kTile of them, a
// number that ends on a byte whatever the bits, so groups of any size can follow each other. What
// goes to the caller's memory (decoded values, or the memory of a link) waits alike: a tile is long
// enough to be written past the cache. All tiles together stay in the first two levels of it.

namespace laconic::part {

namespace {

using kernel::Memory;
using kernel::RunLevels;
using kernel::Sink;
using kernel::Source;

constexpr std::size_t kTile = 4096;  // elements; a rotated block fits
constexpr std::size_t kRoom = kTile + kernel::kSlack;
constexpr std::uint64_t kStreamBytes = 4 << 20;  // above this, writing past the cache pays
constexpr std::uint64_t kRotationStream = 1, kRoundingStream = 2;

// Where `to` and `from` are the same memory its lines are in the cache already.
bool is_stream(std::uint64_t elements, const float* from, const float* to) {
  return elements * sizeof(float) > kStreamBytes && from != to;
}

// The random signs of a rotation, drawn for a tile at a time.
class Signs {
 public:
  explicit Signs(std::uint64_t seed) : key_(derive(key_of(seed), kRotationStream)) {}
  kernel::SignBits from(std::uint64_t element) {
    const std::uint64_t tile = element / kTile;
    if (tile != tile_) fill_words(key_, tile * (kTile / 32), words_);
    tile_ = tile;
    return {words_, element % kTile};
  }

 private:
  Key key_;
  std::uint64_t tile_ = std::numeric_limits<std::uint64_t>::max();
  std::uint32_t words_[kTile / 32];
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
  RunLevels levels() const { return {{}, factors_.data(), steps_.data(), middles_.data()}; }
  void set(std::uint64_t column, const Level& level) {
    for (std::uint64_t i = column; i < run_; i += columns_) {
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
        elements_(elements),
        key_(derive(key_of(seed), kRoundingStream)),
        out_(out),
        sink_{nullptr, nullptr, after, is_after_stream} {}

  void write(Source source, std::uint64_t size, RunLevels levels) {
    while (size > 0) {
      if (fill_ == 0 && is_stochastic()) draw_noise();
      const std::size_t part = std::min<std::uint64_t>(size, kTile - fill_);
      kernel_.quantise({codec_.bits, codec_.grid, source, part,
                        is_stochastic() ? noise_ + fill_ : nullptr, levels, codes_ + fill_,
                        after_ + fill_});
      source = source.later(part);
      levels = levels.later(part);
      size -= part;
      fill_ += part;
      if (fill_ == kTile) flush();
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
    kernel_.fill_noise(key_, done_, std::min<std::uint64_t>(left, kTile), noise_);
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

Level write_scale(const Quantise& codec, Extremes extremes, std::byte* out) {
  const float scale = choose_scale(codec, extremes);
  store_scale(codec.scale, scale, out);
  return level_of(codec, scale);
}

void encode_runs(const Quantise& codec, const QuantiseLayout& layout, const Source& source,
                 std::uint64_t seed, std::byte* scales, CodeWriter& writer) {
  const kernel::QuantiseKernel& kernel = kernel::quantise_kernel();
  Signs signs(seed);
  alignas(64) float rotated[kTile];
  for (std::uint64_t begin = 0; begin < layout.elements; begin += layout.run) {
    const std::uint64_t size = std::min(layout.run, layout.elements - begin);
    Source run = source.later(begin);
    if (codec.rotate) {
      kernel::hadamard().rotate(run.x, size, signs.from(begin), rotated);
      run = {Memory::none, rotated, nullptr};
    }
    const Level level = write_scale(codec, kernel.extremes(run, size), scales);
    scales += scale_bytes(codec.scale);
    writer.write(run, size, {level});
  }
}

// The extremes of every channel, at the front of the two.
void find_channel_extremes(const QuantiseLayout& layout, std::uint64_t run, const Source& source,
                           std::vector<std::int32_t>& magnitudes,
                           std::vector<std::int32_t>& highests) {
  for (std::uint64_t begin = 0; begin < layout.elements; begin += run)
    kernel::quantise_kernel().raise_extremes(source.later(begin),
                                             std::min(run, layout.elements - begin),
                                             magnitudes.data(), highests.data());
  for (std::uint64_t i = layout.run; i < run; ++i) {  // rows that were laid side by side
    magnitudes[i % layout.run] = std::max(magnitudes[i % layout.run], magnitudes[i]);
    highests[i % layout.run] = std::max(highests[i % layout.run], highests[i]);
  }
}

void encode_channels(const Quantise& codec, const QuantiseLayout& layout, const Source& source,
                     std::byte* scales, CodeWriter& writer) {
  ChannelLevels channels(layout.run);
  const std::uint64_t run = channels.run();
  std::vector<std::int32_t> magnitudes(run + kernel::kSlack, 0);
  std::vector<std::int32_t> highests(run + kernel::kSlack,
                                     std::numeric_limits<std::int32_t>::min());
  find_channel_extremes(layout, run, source, magnitudes, highests);
  for (std::uint64_t column = 0; column < layout.groups; ++column)
    channels.set(column, write_scale(codec, {magnitudes[column], highests[column]},
                                     scales + column * scale_bytes(codec.scale)));
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
        signs_(codec.rotate ? get<std::uint64_t>(payload, 0) : 0) {
    if (codec.group != ScaleGroup::channel) return;
    for (std::uint64_t column = 0; column < layout.groups; ++column)
      channels_.set(column, level_at(column));
  }

  // Until the next call. Requires: begin is a multiple of kTile.
  const float* read(std::uint64_t begin, std::size_t size) {
    const auto bits = static_cast<unsigned>(codec_.bits);
    kernel::pack().unpack(payload_.data() + layout_.codes_at + begin * bits / 8, size, codec_.bits,
                          codes_);
    const std::uint64_t run = codec_.group == ScaleGroup::channel ? channels_.run() : layout_.run;
    for (std::size_t i = 0; i < size;) {
      const std::uint64_t element = begin + i, within = element % run;
      const std::size_t part = std::min<std::uint64_t>(size - i, run - within);
      read_part(element, within, i, part);
      i += part;
    }
    return values_;
  }

 private:
  void read_part(std::uint64_t element, std::uint64_t within, std::size_t at, std::size_t size) {
    if (codec_.group == ScaleGroup::channel)
      return kernel_.dequantise(codes_ + at, size, channels_.levels().later(within), values_ + at);
    kernel_.dequantise(codes_ + at, size, {level_at(element / layout_.run)}, values_ + at);
    if (codec_.rotate) kernel::hadamard().unrotate(values_ + at, size, signs_.from(element));
  }

  Level level_at(std::uint64_t group) const {
    const std::size_t offset = layout_.scales_at + group * scale_bytes(codec_.scale);
    return level_of(codec_, load_scale(codec_.scale, payload_.data() + offset));
  }

  const kernel::QuantiseKernel& kernel_ = kernel::quantise_kernel();
  const Quantise& codec_;
  const QuantiseLayout& layout_;
  ByteView payload_;
  ChannelLevels channels_;
  Signs signs_;
  alignas(64) std::uint8_t codes_[kRoom];
  alignas(64) float values_[kRoom];
};

void decode_to(const Quantise& codec, const TensorSpec& tensor, ByteView payload,
               const Sink& sink) {
  const QuantiseLayout layout = layout_of(codec, tensor);
  if (layout.elements == 0) return;
  TileReader reader(codec, layout, payload);
  for (std::uint64_t begin = 0; begin < layout.elements; begin += kTile) {
    const std::size_t size = std::min<std::uint64_t>(kTile, layout.elements - begin);
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
