// With AVX3_DL, which -march=native means on recent processors, TruncateTo of Highway 1.0.3 moves
// words of 32 bits where it should move bytes.
#define HWY_DISABLED_TARGETS HWY_AVX3_DL

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "laconic/codec/kernel/level.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
//
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "laconic/base/kernel/philox-inl.hpp"
#include "laconic/codec/kernel/level.hpp"

// Rounding adds 1.5 * 2^23, where floats are the integers: the sum is rounded to nearest, ties to
// even, and its low byte is the code. That the summand is even (with L added too) keeps the ties.

HWY_BEFORE_NAMESPACE();
namespace laconic::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using TagI = hn::RebindToSigned<Tag>;
using TagU = hn::RebindToUnsigned<Tag>;
using TagByte = hn::Rebind<std::uint8_t, Tag>;
using Vec = hn::Vec<Tag>;
using VecI = hn::Vec<TagI>;
static constexpr std::size_t kMostLanes = HWY_MAX_BYTES / sizeof(float);
static constexpr float kToInteger = 12582912.0f;
static_assert(kMostLanes <= kSlack);

HWY_INLINE Vec canonical(Vec v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(Tag(), std::numeric_limits<float>::quiet_NaN()), v);
}

template <Memory kMemory>
HWY_INLINE Vec load(const Source& source, std::size_t i) {
  const Tag d;
  const Vec x = hn::LoadU(d, source.x + i);
  if constexpr (kMemory == Memory::feedback) return hn::Add(x, hn::LoadU(d, source.before + i));
  if constexpr (kMemory == Memory::difference) return hn::Sub(x, hn::LoadU(d, source.before + i));
  return x;
}

// Calls body(source, i, at) for the vectors of a source: read at i, the result belongs at `at`.
// They differ for the last vector, if partial: it comes as a copy padded with zeros.
template <Memory kMemory, class Body>
HWY_INLINE void for_each_vector(const Source& source, std::size_t size, const Body& body) {
  const std::size_t lanes = hn::Lanes(Tag());
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) body(source, i, i);
  if (i == size) return;
  HWY_ALIGN float x[kMostLanes] = {};
  HWY_ALIGN float before[kMostLanes] = {};
  std::copy(source.x + i, source.x + size, x);
  if constexpr (kMemory != Memory::none) std::copy(source.before + i, source.before + size, before);
  body(Source{kMemory, x, before}, 0, i);
}

template <class Op>
HWY_INLINE auto with_memory(Memory memory, const Op& op) {
  switch (memory) {
    case Memory::feedback: return op(std::integral_constant<Memory, Memory::feedback>());
    case Memory::difference: return op(std::integral_constant<Memory, Memory::difference>());
    default: return op(std::integral_constant<Memory, Memory::none>());
  }
}

// --- extremes

HWY_INLINE VecI bits_of(Vec v) {
  return hn::BitCast(TagI(), v);
}

HWY_INLINE VecI magnitude_of(VecI bits) {
  return hn::And(bits, hn::Set(TagI(), 0x7FFFFFFF));
}

template <Memory kMemory>
HWY_INLINE Extremes extremes_with(const Source& source, std::size_t size) {
  const TagI d;
  VecI magnitude = hn::Zero(d);
  VecI highest = hn::Set(d, std::numeric_limits<std::int32_t>::min());
  for_each_vector<kMemory>(source, size, [&](const Source& from, std::size_t i, std::size_t) {
    const VecI bits = bits_of(load<kMemory>(from, i));
    magnitude = hn::Max(magnitude, magnitude_of(bits));
    highest = hn::Max(highest, bits);
  });
  return {hn::GetLane(hn::MaxOfLanes(d, magnitude)), hn::GetLane(hn::MaxOfLanes(d, highest))};
}

void extremes(Source source, std::size_t size, std::size_t group, Extremes* out) {
  with_memory(source.memory, [&](auto m) {
    for (std::size_t i = 0; i < size; i += group)
      *out++ = extremes_with<m()>(source.later(i), std::min(group, size - i));
  });
}

template <Memory kMemory>
void raise_extremes_with(const Source& source, std::size_t size, std::int32_t* magnitudes,
                         std::int32_t* highests) {
  const TagI d;
  for_each_vector<kMemory>(source, size, [&](const Source& from, std::size_t i, std::size_t at) {
    const VecI bits = bits_of(load<kMemory>(from, i));
    hn::StoreU(hn::Max(hn::LoadU(d, magnitudes + at), magnitude_of(bits)), d, magnitudes + at);
    hn::StoreU(hn::Max(hn::LoadU(d, highests + at), bits), d, highests + at);
  });
}

void raise_extremes(Source source, std::size_t size, std::int32_t* magnitudes,
                    std::int32_t* highests) {
  with_memory(source.memory,
              [&](auto m) { raise_extremes_with<m()>(source, size, magnitudes, highests); });
}

// --- levels

struct VecLevel {
  Vec factor, step, middle;
};

struct SameLevel {
  VecLevel level;
  explicit SameLevel(const Level& all)
      : level{hn::Set(Tag(), all.encode_factor), hn::Set(Tag(), all.step),
              hn::Set(Tag(), all.middle)} {}
  HWY_INLINE const VecLevel& at(std::size_t) const { return level; }
};

struct OwnLevel {
  const float* factors;
  const float* steps;
  const float* middles;
  explicit OwnLevel(const RunLevels& levels)
      : factors(levels.encode_factors), steps(levels.steps), middles(levels.middles) {}
  HWY_INLINE VecLevel at(std::size_t i) const {
    const Tag d;
    return {hn::LoadU(d, factors + i), hn::LoadU(d, steps + i), hn::LoadU(d, middles + i)};
  }
};

// --- quantise

enum class Rule { tread, ends, ends_stochastic, artefact, powers };

// The same for all elements of a tensor.
struct Limits {
  Vec low, high, to_integer, half;
  Vec least;  // powers: from here on it is not zero
  Limits(Rule rule, int bits) {
    const Tag d;
    const bool is_ends = rule == Rule::ends || rule == Rule::ends_stochastic;
    const float levels = static_cast<float>(1 << bits);
    low = hn::Set(d, is_ends ? 0.0f : -levels / 2);
    high = hn::Set(d, is_ends ? levels - 1 : levels / 2 - 1);
    to_integer = hn::Set(d, is_ends ? kToInteger : kToInteger + levels / 2);
    half = hn::Set(d, levels / 2);
    least = hn::Set(
        d, rule == Rule::powers ? 1.0f / static_cast<float>(1 << ((1 << bits) / 2 - 1)) : 0);
  }
};

// --- powers of two: of the number k, counted from L, the sign is the sign, and |k| what is added
// to the exponent of 2^(1 - L). So L - 1 is the scale itself, and 0 stands for zero.

HWY_INLINE Vec power_of(Vec k, Vec middle) {
  const Tag d;
  const TagI di;
  const Vec biased = hn::Add(hn::Sub(hn::Abs(k), middle), hn::Set(d, 128.0f));
  const Vec power = hn::BitCast(d, hn::ShiftLeft<23>(hn::ConvertTo(di, biased)));
  return hn::IfThenZeroElse(hn::Eq(k, hn::Zero(d)), hn::CopySign(power, k));
}

// The nearest power, ties away from zero: half of a mantissa is added, and its carry goes into the
// exponent.
HWY_INLINE Vec nearest_power(Vec y, const Limits& limits) {
  const Tag d;
  const TagI di;
  const Vec magnitude = hn::Min(hn::Abs(y), hn::Set(d, 1.0f));
  const VecI carried = hn::Add(hn::BitCast(di, magnitude), hn::Set(di, 0x400000));
  const Vec exponent = hn::ConvertTo(d, hn::ShiftRight<23>(carried));
  Vec k = hn::Add(hn::Sub(exponent, hn::Set(d, 128.0f)), limits.half);
  k = hn::Max(k, hn::Set(d, 1.0f));  // what is nearer to the least power than to zero
  return hn::CopySign(hn::IfThenZeroElse(hn::Lt(magnitude, limits.least), k), y);
}

// to_integer + the code without L: its low byte is the code.
template <Rule kRule>
HWY_INLINE Vec round_to_code(Vec v, const VecLevel& level, const Limits& limits, const float* noise,
                             std::size_t i) {
  const Tag d;
  // Whatever a dead group holds, infinities and NaN too, gets the code of zero.
  v = hn::IfThenElseZero(hn::Ne(level.factor, hn::Zero(d)), v);
  Vec y;
  if constexpr (kRule == Rule::artefact) {
    const auto is_dead = hn::Eq(level.factor, hn::Zero(d));
    y = hn::Mul(hn::Div(v, hn::IfThenElse(is_dead, hn::Set(d, 1.0f), level.factor)), limits.half);
  } else {
    y = hn::Mul(v, level.factor);
  }
  if constexpr (kRule == Rule::powers) return hn::Add(nearest_power(y, limits), limits.to_integer);
  if constexpr (kRule == Rule::ends || kRule == Rule::ends_stochastic) y = hn::Add(y, level.middle);
  if constexpr (kRule == Rule::ends_stochastic) y = hn::Floor(hn::Add(y, hn::LoadU(d, noise + i)));
  // Limiting before rounding is the same as after: the limits are integers.
  y = hn::Min(hn::Max(y, limits.low), limits.high);
  return hn::Add(y, limits.to_integer);
}

template <Rule kRule>
HWY_INLINE Vec decoded(Vec rounded, const VecLevel& level, const Limits& limits) {
  Vec q = hn::Sub(rounded, limits.to_integer);
  if constexpr (kRule == Rule::powers) q = power_of(q, limits.half);
  if constexpr (kRule == Rule::ends || kRule == Rule::ends_stochastic) q = hn::Sub(q, level.middle);
  return hn::Mul(q, level.step);
}

template <Memory kMemory>
HWY_INLINE Vec remembered(const Source& source, std::size_t i, Vec sent, Vec received) {
  if constexpr (kMemory == Memory::feedback) return canonical(hn::Sub(sent, received));
  return canonical(hn::Add(hn::LoadU(Tag(), source.before + i), received));
}

// Calls part(level, begin, size) for the parts of a run that share a level.
template <class Part>
HWY_INLINE void for_each_group(const RunLevels& levels, std::size_t size, const Part& part) {
  const Level* level = levels.groups;
  std::size_t room = levels.group - levels.used;
  for (std::size_t i = 0; i < size; room = levels.group) {
    const std::size_t count = std::min(room, size - i);
    part(SameLevel(*level++), i, count);
    i += count;
  }
}

template <Rule kRule, Memory kMemory, class Levels>
HWY_INLINE void quantise_part(const QuantiseRun& run, const Limits& limits, const Levels& levels,
                              std::size_t begin, std::size_t size) {
  const TagByte d8;
  std::uint8_t* HWY_RESTRICT codes = run.codes + begin;
  float* HWY_RESTRICT after = run.after + begin;
  const float* noise = run.noise == nullptr ? nullptr : run.noise + begin;
  for_each_vector<kMemory>(
      run.source.later(begin), size, [&](const Source& from, std::size_t i, std::size_t at) {
        const Vec v = load<kMemory>(from, i);
        const VecLevel level = levels.at(at);
        const Vec rounded = round_to_code<kRule>(v, level, limits, noise, at);
        hn::StoreU(hn::TruncateTo(d8, hn::BitCast(TagU(), rounded)), d8, codes + at);
        if constexpr (kMemory != Memory::none) {
          const Vec received = decoded<kRule>(rounded, level, limits);
          hn::StoreU(remembered<kMemory>(from, i, v, received), Tag(), after + at);
        }
      });
}

template <Rule kRule, Memory kMemory>
void quantise_with(const QuantiseRun& run) {
  const Limits limits(kRule, run.bits);
  if (run.levels.groups == nullptr)
    return quantise_part<kRule, kMemory>(run, limits, OwnLevel(run.levels), 0, run.size);
  if constexpr (kRule != Rule::artefact)  // which has channels only
    for_each_group(run.levels, run.size,
                   [&](const SameLevel& level, std::size_t begin, std::size_t size) {
                     quantise_part<kRule, kMemory>(run, limits, level, begin, size);
                   });
}

template <Rule kRule>
void quantise_by(const QuantiseRun& run) {
  with_memory(run.source.memory, [&](auto m) { quantise_with<kRule, m()>(run); });
}

void quantise(const QuantiseRun& run) {
  switch (run.grid) {
    case Grid::tread: return quantise_by<Rule::tread>(run);
    case Grid::artefact: return quantise_by<Rule::artefact>(run);
    case Grid::powers: return quantise_by<Rule::powers>(run);
    case Grid::ends:
      return run.noise == nullptr ? quantise_by<Rule::ends>(run)
                                  : quantise_by<Rule::ends_stochastic>(run);
  }
}

// --- and back

template <bool kPowers, class Levels>
HWY_INLINE void dequantise_part(const std::uint8_t* HWY_RESTRICT codes, std::size_t size,
                                const Levels& levels, float* HWY_RESTRICT out) {
  const Tag d;
  const TagI di;
  for (std::size_t i = 0; i < size; i += hn::Lanes(d)) {
    const VecLevel level = levels.at(i);
    const VecI code = hn::PromoteTo(di, hn::LoadU(TagByte(), codes + i));
    Vec q = hn::Sub(hn::ConvertTo(d, code), level.middle);
    if constexpr (kPowers) q = power_of(q, level.middle);
    hn::StoreU(hn::Mul(q, level.step), d, out + i);
  }
}

template <bool kPowers>
void dequantise_with(const std::uint8_t* codes, std::size_t size, const RunLevels& levels,
                     float* out) {
  if (levels.groups == nullptr) return dequantise_part<kPowers>(codes, size, OwnLevel(levels), out);
  for_each_group(levels, size, [&](const SameLevel& level, std::size_t begin, std::size_t count) {
    dequantise_part<kPowers>(codes + begin, count, level, out + begin);
  });
}

void fill_noise(Key key, std::uint64_t first, std::size_t size, float* out) {
  const Tag d;
  const TagU du;
  const auto convert = [&](const std::uint32_t* words, std::size_t at, std::size_t count) {
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
      const auto high = hn::BitCast(TagI(), hn::ShiftRight<8>(hn::LoadU(du, words + i)));
      hn::StoreU(hn::Mul(hn::ConvertTo(d, high), hn::Set(d, 0x1p-24f)), d, out + at + i);
    }
  };
  laconic::HWY_NAMESPACE::for_each_word_run(key, first, size, convert);
}

// --- delivery

HWY_INLINE std::size_t until_aligned(const float* at, std::size_t size) {
  const std::size_t bytes = hn::Lanes(Tag()) * sizeof(float);
  const std::size_t over = reinterpret_cast<std::uintptr_t>(at) % bytes;
  return std::min(size, over == 0 ? 0 : (bytes - over) / sizeof(float));
}

void copy_values(const float* values, std::size_t size, float* out, bool is_stream) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = is_stream ? until_aligned(out, size) : 0;
  std::copy(values, values + i, out);
  if (is_stream)
    for (; i + lanes <= size; i += lanes) hn::Stream(hn::LoadU(d, values + i), d, out + i);
  std::copy(values + i, values + size, out + i);
}

HWY_INLINE void put(Vec v, float* to, bool is_stream) {
  if (is_stream)
    hn::Stream(v, Tag(), to);
  else
    hn::StoreU(v, Tag(), to);
}

HWY_INLINE void add_one(const float* values, const Sink& sink, std::size_t i) {
  const float sum = sink.before[i] + values[i];
  sink.after[i] = sum != sum ? std::numeric_limits<float>::quiet_NaN() : sum;
  if (sink.out != nullptr) sink.out[i] = sink.after[i];
}

void add_values(const float* values, std::size_t size, const Sink& sink) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t head = sink.is_stream ? until_aligned(sink.after, size) : 0;
  std::size_t i = 0;
  for (; i < head; ++i) add_one(values, sink, i);
  const bool is_out_stream =
      sink.is_stream && sink.out != nullptr && until_aligned(sink.out + i, lanes) == 0;
  for (; i + lanes <= size; i += lanes) {
    const Vec sum = canonical(hn::Add(hn::LoadU(d, sink.before + i), hn::LoadU(d, values + i)));
    put(sum, sink.after + i, sink.is_stream);
    if (sink.out != nullptr) put(sum, sink.out + i, is_out_stream);
  }
  for (; i < size; ++i) add_one(values, sink, i);
}

void deliver(const float* values, std::size_t size, const Sink& sink) {
  if (sink.before == nullptr) return copy_values(values, size, sink.out, sink.is_stream);
  add_values(values, size, sink);
}

const QuantiseKernel* quantise_table() {
  static constexpr QuantiseKernel kTable = {
      extremes,   raise_extremes, quantise, dequantise_with<false>, dequantise_with<true>,
      fill_noise, deliver};
  return &kTable;
}

}  // namespace laconic::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace laconic::kernel {

HWY_EXPORT(quantise_table);

const QuantiseKernel& quantise_kernel() {
  return *HWY_DYNAMIC_DISPATCH(quantise_table)();
}

}  // namespace laconic::kernel
#endif  // HWY_ONCE
