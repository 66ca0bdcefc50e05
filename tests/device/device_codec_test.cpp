// Codecs on a device against those on the CPU: payloads, decoded numbers and memories, bit by bit.
// One source, two programs: on a GPU, and everywhere on kernels that the emulator runs.
#include "laconic/codec/device_codec.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "laconic/base/denormals.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/codec/kernel/conversion.hpp"
#include "tests/device/test_device.hpp"
#include "tests/golden/golden_frame.hpp"

namespace laconic {
namespace {

using test::TestBuffer;
using Floats = std::vector<float>;
using kernel::Memory;

using DeviceCodec = test::DeviceTest;

// --- numbers

enum class Kind { normal, bits, zeros, denormal, huge, few, ties, alternating, one_bad };
constexpr Kind kKinds[] = {Kind::normal, Kind::bits, Kind::zeros,       Kind::denormal, Kind::huge,
                           Kind::few,    Kind::ties, Kind::alternating, Kind::one_bad};

Floats numbers_of(Kind kind, std::size_t count, Key key) {
  Floats x(count);
  fill_normal(key, 0, 0.0, 1.0, std::span<float>(x));
  std::vector<std::uint32_t> words(count + 1);
  fill_words(derive(key, 7), 0, words);
  for (std::size_t i = 0; i < count; ++i) switch (kind) {
      case Kind::normal: break;
      case Kind::bits: x[i] = std::bit_cast<float>(words[i]); break;
      case Kind::zeros: x[i] = words[i] % 2 == 0 ? 0.0f : -0.0f; break;
      case Kind::denormal:
        x[i] = std::bit_cast<float>(words[i] & 0x81FFFFFFu);  // around the smallest normal
        break;
      case Kind::huge: x[i] = std::bit_cast<float>((words[i] & 0x80FFFFFFu) | 0x7E000000u); break;
      case Kind::few: x[i] = words[i] % 16 == 0 ? x[i] : 0.0f; break;
      case Kind::ties: x[i] = static_cast<float>(static_cast<int>(words[i] % 7) - 3); break;
      case Kind::alternating: x[i] = i % 2 == 0 ? 0.5f : -0.5f; break;
      case Kind::one_bad: break;
    }
  if (kind == Kind::one_bad && count > 0) {
    constexpr std::uint32_t kBad[] = {0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x7F800001};
    x[words[count] % count] = std::bit_cast<float>(kBad[words[count] / 7 % 5]);
  }
  return x;
}

std::vector<std::uint32_t> bits_with_one_nan(const Floats& x) {
  std::vector<std::uint32_t> bits(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    bits[i] = x[i] != x[i] ? 0x7FC00000u : std::bit_cast<std::uint32_t>(x[i]);
  return bits;
}

// A tensor's bytes as f32, without rounding away what they are.
Floats floats_of(const TensorSpec& spec, const Bytes& bytes) {
  Floats x(elements_of(spec));
  if (!x.empty()) widen_bytes(spec.dtype, bytes.data(), x.size(), x.data());
  return x;
}

void expect_same_floats(const Floats& device, const Floats& host, const char* what) {
  ASSERT_EQ(device.size(), host.size());
  const auto a = bits_with_one_nan(device), b = bits_with_one_nan(host);
  const auto differ = std::ranges::mismatch(a, b);
  if (differ.in1 == a.end()) return;
  const auto i = static_cast<std::size_t>(differ.in1 - a.begin());
  ADD_FAILURE() << what << ": element " << i << " of " << a.size() << " is "
                << fmt::format("{:08x} ({}) instead of {:08x} ({})", a[i], device[i], b[i],
                               host[i]);
}

void expect_same_bytes(ByteView device, ByteView host, const char* what) {
  ASSERT_EQ(device.size(), host.size()) << what;
  const auto differ = std::ranges::mismatch(device, host);
  if (differ.in1 == device.end()) return;
  const auto i = differ.in1 - device.begin();
  std::size_t count = 0;
  for (std::size_t k = 0; k < device.size(); ++k) count += device[k] != host[k] ? 1 : 0;
  ADD_FAILURE() << what << ": byte " << i << " of " << device.size() << " is "
                << fmt::format("{:02x} instead of {:02x}; {} differ",
                               std::to_integer<int>(*differ.in1), std::to_integer<int>(*differ.in2),
                               count);
}

// --- one message on both

struct Message {
  CodecSpec codec;
  TensorSpec spec;
  Bytes x;  // in the tensor's dtype
  Floats before;
  Floats map;
  std::uint64_t seed = 9;
  std::size_t misalignment = 0;  // elements
  std::size_t count() const { return before.size(); }
  CodecInput input() const { return {.seed = seed, .maps = {map.data(), map.data()}}; }
  Bytes room() const { return Bytes(max_payload_bytes(codec, spec)); }
};

Message message_of(const CodecSpec& codec, Dtype dtype, std::vector<std::int64_t> shape, Kind kind,
                   Key key) {
  Message message{codec, {dtype, std::move(shape)}, {}, {}, {}};
  const std::size_t count = elements_of(message.spec);
  const Floats x = numbers_of(kind, count, derive(key, 1));
  message.x.resize(count * bytes_of(dtype));
  if (count > 0 && dtype == Dtype::f32)
    std::memcpy(message.x.data(), x.data(), message.x.size());
  else
    narrow_bytes(dtype, x.data(), count, message.x.data());
  message.before = numbers_of(kind == Kind::bits ? Kind::normal : kind, count, derive(key, 2));
  if (const auto* learned = std::get_if<AutoEncoder>(&codec))
    message.map = numbers_of(Kind::normal,
                             static_cast<std::size_t>(learned->code) *
                                 std::max<std::size_t>(matrix_shape(message.spec).columns, 1),
                             derive(key, 3));
  message.seed = std::uint64_t{word_at(key, 5)} << 32 | word_at(key, 6);
  return message;
}

// Device memory of one message.
struct OnDevice {
  explicit OnDevice(const Message& m)
      : message(m),
        x(m.x.size(), m.misalignment * bytes_of(m.spec.dtype)),
        before(m.count() * 4, m.misalignment * 4),
        after(m.count() * 4, m.misalignment * 4),
        map(m.map.size() * 4),
        staged(staged_bytes(m.codec, m.spec)),
        scratch(device_scratch_bytes(m.codec, m.spec)),
        unsound(4) {
    test::to_device(x.as(), m.x.data(), m.x.size());
    test::to_device(before.as(), m.before.data(), m.count() * 4);
    test::to_device(map.as(), m.map.data(), m.map.size() * 4);
    const std::uint32_t zero = 0;
    test::to_device(unsound.as(), &zero, 4);
  }

  DeviceInput input() const {
    return {.seed = message.seed, .maps = {map.as<float>(), map.as<float>()}};
  }
  DeviceSource source(Memory memory) const {
    DeviceSource from{message.spec.dtype, x.as()};
    if (memory == Memory::none) return from;
    from.memory = memory;
    from.before = before.as<float>();
    from.after = after.as<float>();
    from.is_unsound = unsound.as<std::uint32_t>();
    return from;
  }
  Bytes encode(Memory memory, DeviceInput in) const {
    device_encode(message.codec, message.spec, source(memory), in, staged.as<std::byte>(),
                  scratch.as<std::byte>(), codec_stream());
    Bytes host(staged_bytes(message.codec, message.spec));
    test::from_device(host.data(), staged.as(), host.size());
    Bytes payload = message.room();
    payload.resize(unstage(message.codec, message.spec, host, payload));
    return payload;
  }
  Bytes encode(Memory memory) const { return encode(memory, input()); }
  void decode(const Bytes& payload, const DeviceSink& sink) const {
    Bytes host(staged_bytes(message.codec, message.spec));
    stage(message.codec, message.spec, payload, host);
    test::to_device(staged.as(), host.data(), host.size());
    DeviceInput in = input();
    in.seed = payload_seed(message.codec, payload);
    device_decode(message.codec, message.spec, staged.as<std::byte>(), in, sink,
                  scratch.as<std::byte>(), codec_stream());
  }
  Floats floats(const TestBuffer& buffer) const {
    Floats host(message.count());
    test::from_device(host.data(), buffer.as(), host.size() * 4);
    return host;
  }
  bool is_unsound() const {
    std::uint32_t found = 7;
    test::from_device(&found, unsound.as(), 4);
    return found != 0;
  }

  const Message& message;
  TestBuffer x, before, after, map, staged, scratch, unsound;
};

void expect_same_decoding(const Message& m, const OnDevice& device, const Bytes& payload) {
  Bytes expected(m.x.size()), found(m.x.size());
  decode(m.codec, payload, m.input(), {m.spec, expected.data()});
  const TestBuffer out(m.x.size(), m.misalignment * bytes_of(m.spec.dtype));
  device.decode(payload, {.dtype = m.spec.dtype, .out = out.as()});
  test::from_device(found.data(), out.as(), found.size());
  if (!is_float(m.spec.dtype)) return expect_same_bytes(found, expected, "decoded");
  expect_same_floats(floats_of(m.spec, found), floats_of(m.spec, expected), "decoded");
}

// sum + decoded, as collectives add.
void expect_same_sum(const Message& m, const OnDevice& device, const Bytes& payload) {
  if (m.spec.dtype == Dtype::f64) return;
  const ScopedDenormals flush(true);
  Bytes decoded(m.x.size()), sum(m.x.size());
  decode(m.codec, payload, m.input(), {m.spec, decoded.data()});
  narrow_bytes(m.spec.dtype, m.before.data(), m.count(), sum.data());
  const TestBuffer out(sum.size());
  test::to_device(out.as(), sum.data(), sum.size());
  device.decode(payload, {.kind = Delivery::add, .dtype = m.spec.dtype, .out = out.as()});
  Floats a = floats_of(m.spec, sum);
  const Floats b = floats_of(m.spec, decoded);
  kernel::conversion().add(a.data(), b.data(), a.size());
  narrow_bytes(m.spec.dtype, a.data(), a.size(), sum.data());
  Bytes found(sum.size());
  test::from_device(found.data(), out.as(), found.size());
  expect_same_floats(floats_of(m.spec, found), floats_of(m.spec, sum), "sum");
}

void expect_same_memory(const Message& m, Memory memory) {
  const OnDevice device(m);
  const ConstHostTensor x{m.spec, m.x.data()};
  Bytes payload = m.room();
  Floats after(m.count());
  const bool is_feedback = memory == Memory::feedback;
  payload.resize(
      is_feedback
          ? encode_with_feedback(m.codec, x, m.before.data(), after.data(), m.input(), payload)
          : encode_difference(m.codec, x, m.before.data(), after.data(), m.input(), payload));
  expect_same_bytes(device.encode(memory), payload, is_feedback ? "feedback" : "difference");
  expect_same_floats(device.floats(device.after), after, is_feedback ? "residual" : "reference");
  EXPECT_EQ(device.is_unsound(), !is_finite(after.data(), after.size()));
  if (is_feedback) return;
  Bytes expected(m.x.size()), found(m.x.size());
  decode_difference(m.codec, payload, m.before.data(), after.data(), m.input(),
                    {m.spec, expected.data()});
  const TestBuffer out(m.x.size());
  device.decode(payload, {Delivery::difference, m.spec.dtype, out.as(), device.before.as<float>(),
                          device.after.as<float>()});
  test::from_device(found.data(), out.as(), found.size());
  expect_same_floats(device.floats(device.after), after, "received reference");
  expect_same_floats(floats_of(m.spec, found), floats_of(m.spec, expected), "received");
}

// Two messages in a row, the second from where the first ended.
void expect_same_warm_start(const Message& m) {
  const auto& low_rank = std::get<LowRank>(m.codec);
  const std::uint64_t size = matrix_shape(m.spec).columns * effective_rank(low_rank, m.spec);
  if (m.count() == 0) return;
  const OnDevice device(m);
  const TestBuffer basis(size * 4), has_basis(4);
  const std::uint32_t zero = 0;
  test::to_device(has_basis.as(), &zero, 4);
  std::vector<float> host_basis;
  for (int turn = 0; turn < 2; ++turn) {
    CodecInput input = m.input();
    input.basis = &host_basis;
    Bytes payload = m.room();
    payload.resize(encode(m.codec, {m.spec, m.x.data()}, input, payload));
    DeviceInput in = device.input();
    in.basis = basis.as<float>();
    in.has_basis = has_basis.as<std::uint32_t>();
    expect_same_bytes(device.encode(Memory::none, in), payload, "warm start");
    std::uint32_t has = 7;
    test::from_device(&has, has_basis.as(), 4);
    ASSERT_EQ(has, host_basis.empty() ? 0u : 1u);
    if (host_basis.empty()) continue;
    Floats found(size);
    test::from_device(found.data(), basis.as(), size * 4);
    expect_same_floats(found, host_basis, "basis");
  }
}

void expect_same_message(const Message& m) {
  SCOPED_TRACE(fmt::format("{} of {} [{}], misaligned by {}, seed {}", to_text(m.codec),
                           name_of(m.spec.dtype), fmt::join(m.spec.shape, ", "), m.misalignment,
                           m.seed));
  ASSERT_TRUE(check(m.codec, m.spec).empty());
  Bytes payload = m.room();
  payload.resize(encode(m.codec, {m.spec, m.x.data()}, m.input(), payload));
  {
    const OnDevice device(m);
    expect_same_bytes(device.encode(Memory::none), payload, "payload");
    expect_same_decoding(m, device, payload);
    if (is_float(m.spec.dtype)) expect_same_sum(m, device, payload);
  }
  if (!is_float(m.spec.dtype)) return;
  expect_same_memory(m, Memory::feedback);
  expect_same_memory(m, Memory::difference);
  if (std::holds_alternative<LowRank>(m.codec)) expect_same_warm_start(m);
}

constexpr const char* kCodecs[] = {
    "raw",
    "half",
    "half:kind=f16",
    "huffman",
    "huffman:kind=f16",
    "huffman:kind=f32",
    "quantise:bits=4",
    "quantise:bits=1,block=8,grid=ends",
    "quantise:bits=2,block=64,scale=f16",
    "quantise:bits=3,block=32,scale=pow2",
    "quantise:bits=5,block=24",
    "quantise:bits=6,block=1000",
    "quantise:bits=7,block=7",
    "quantise:bits=8,block=4096",
    "quantise:bits=4,block=9000",
    "quantise:bits=4,block=512,grid=ends,rounding=stochastic",
    "quantise:bits=4,block=2048,grid=ends",
    "quantise:bits=3,group=row,scale=f16,grid=ends",
    "quantise:bits=4,group=channel",
    "quantise:bits=8,group=channel,scale=f16,grid=artefact",
    "quantise:bits=4,block=16,rotate=true",
    "quantise:bits=4,block=256,rotate=true",
    "quantise:bits=2,block=4096,rotate=true,grid=ends,rounding=stochastic",
    "sign",
    "sign:block=16",
    "sign:block=10",
    "sign:block=1024",
    "sign:block=4096",
    "sign:block=5000",
    "top_k:keep=0.3",
    "top_k:keep=0.01+half",
    "top_k:keep=1+quantise:bits=4",
    "random_k:keep=0.3",
    "random_k:keep=0.9,unbiased=true+half",
    "random_k:keep=0.1+quantise:bits=4,block=16",
    "low_rank:rank=2",
    "low_rank:rank=9,factors=f16",
    "low_rank:rank=20,factors=bf16",
    "auto_encoder:code=5",
    "auto_encoder:code=40,values=f16"};

TEST_F(DeviceCodec, EveryCodecOnOddTensors) {
  const std::vector<std::vector<std::int64_t>> shapes = {{},     {0},    {1},       {7, 0},
                                                         {3, 7}, {5, 9}, {5, 1024}, {4100}};
  std::uint64_t number = 0;
  for (const char* text : kCodecs)
    for (const auto& shape : shapes)
      for (const Kind kind : {Kind::normal, Kind::one_bad, Kind::denormal})
        // Every fifth where a case takes long: five divides no number of kinds or shapes.
        if (++number % 5 == 0 || test::device_cases() >= 1000)
          expect_same_message(
              message_of(parse_codec(text), Dtype::f32, shape, kind, derive(key_of(1), number)));
}

TEST_F(DeviceCodec, EveryCodecOnEveryKindOfNumbers) {
  std::uint64_t number = 0;
  const auto is_due = [&] { return ++number % 5 == 0 || test::device_cases() >= 1000; };
  for (const char* text : kCodecs)
    for (const Kind kind : kKinds)
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64})
        if (is_due())
          expect_same_message(
              message_of(parse_codec(text), dtype, {9, 64}, kind, derive(key_of(2), number)));
}

TEST_F(DeviceCodec, RawCarriesAnything) {
  for (const Dtype dtype : {Dtype::i64, Dtype::i32, Dtype::i16, Dtype::i8, Dtype::u8}) {
    Message message{Raw{}, {dtype, {5, 7}}, Bytes(35 * bytes_of(dtype)), Floats(35), {}};
    for (std::size_t i = 0; i < message.x.size(); ++i)
      message.x[i] = static_cast<std::byte>(i * 37 + 1);
    expect_same_message(message);
  }
}

// Enough for the sample of top_k and for many blocks of threads.
TEST_F(DeviceCodec, LargerTensors) {
  std::uint64_t number = 0;
  for (const char* text :
       {"top_k:keep=0.01", "top_k:keep=0.2", "random_k:keep=0.01", "random_k:keep=0.6",
        "quantise:bits=4", "sign:block=70000", "quantise:bits=4,block=2048,rotate=true"})
    for (const Kind kind : {Kind::normal, Kind::ties, Kind::zeros, Kind::few})
      expect_same_message(
          message_of(parse_codec(text), Dtype::f32, {70001}, kind, derive(key_of(3), ++number)));
}

// Tiles that are whole and a rest that is cut, for all sizes of blocks.
TEST_F(DeviceCodec, RotatedBlocks) {
  constexpr const char* kRest[] = {"", ",scale=f16", ",scale=pow2", ",grid=ends",
                                   ",grid=ends,rounding=stochastic,scale=f16"};
  constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f32, Dtype::f16, Dtype::f64};
  std::uint64_t number = 0;
  for (int block = 8; block <= 4096; block *= 2)
    for (const Kind kind : {Kind::normal, Kind::bits, Kind::ties, Kind::one_bad}) {
      const std::uint64_t n = ++number;
      const int bits = static_cast<int>(2 + n % 7);
      Message message =
          message_of(parse_codec(fmt::format("quantise:bits={},block={},rotate=true{}",
                                             n % 2 == 0 ? 4 : bits, block, kRest[n % 5])),
                     kDtypes[n / 2 % 5], {static_cast<std::int64_t>(3 * 4096 + n * 1237 % 4096)},
                     kind, derive(key_of(5), n));
      if (n % 6 == 5) message.misalignment = 1 + n % 3;
      expect_same_message(message);
    }
}

// More rows than a thread walks down, rows that are no power of two, and rows of more strips than
// the emulated device has blocks.
TEST_F(DeviceCodec, ManyRows) {
  std::uint64_t number = 0;
  for (const char* text : {"quantise:bits=4,group=channel", "quantise:bits=3,group=row",
                           "quantise:bits=8,group=channel,grid=ends,rounding=stochastic"})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const Kind kind : {Kind::normal, Kind::one_bad}) {
        expect_same_message(
            message_of(parse_codec(text), dtype, {301, 24}, kind, derive(key_of(5), ++number)));
        expect_same_message(
            message_of(parse_codec(text), dtype, {9, 768}, kind, derive(key_of(5), ++number)));
        expect_same_message(
            message_of(parse_codec(text), dtype, {5, 1048}, kind, derive(key_of(5), ++number)));
      }
}

// Rows that a whole block of threads takes, full and not.
TEST_F(DeviceCodec, LongRows) {
  const std::vector<std::vector<std::int64_t>> shapes = {{3, 6144}, {2, 8192}, {2, 4104},
                                                         {2, 6152}, {1, 6143}, {1, 7001}};
  constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f32, Dtype::f16};
  constexpr Kind kRowKinds[] = {Kind::normal, Kind::one_bad, Kind::denormal};
  std::uint64_t number = 0;
  for (const char* text : {"quantise:bits=4,group=row", "quantise:bits=3,group=row,scale=f16",
                           "quantise:bits=8,group=row,grid=ends,rounding=stochastic"})
    for (const auto& shape : shapes) {
      ++number;
      expect_same_message(message_of(parse_codec(text), kDtypes[number % 4], shape,
                                     kRowKinds[number / 2 % 3], derive(key_of(6), number)));
    }
}

// Codes of 4 bits rounded at random, which have kernels of their own: groups that fill their lanes
// and others, and a last one that is cut off.
TEST_F(DeviceCodec, RoundedAtRandom) {
  constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
  std::uint64_t number = 0;
  for (const Kind kind : kKinds)
    for (const int block : {256, 200, 1024, 600, 4096, 2000})
      for (const std::int64_t size : {8192, 5003}) {
        ++number;
        expect_same_message(message_of(
            parse_codec(
                fmt::format("quantise:bits=4,block={},grid=ends,rounding=stochastic", block)),
            kDtypes[(number + number / 12) % 3], {size}, kind, derive(key_of(7), number)));
      }
}

// Numbers of 16 bits without a memory, in groups that have kernels of their own, likewise.
TEST_F(DeviceCodec, EightsOfBf16) {
  constexpr Kind kEightKinds[] = {Kind::normal, Kind::one_bad, Kind::denormal, Kind::normal};
  std::uint64_t number = 0;
  for (const int block : {256, 512, 1024})
    for (const std::int64_t size : {8192, 5003, 131}) {
      ++number;
      expect_same_message(message_of(parse_codec(fmt::format("quantise:bits=4,block={}", block)),
                                     Dtype::bf16, {size}, kEightKinds[number % 4],
                                     derive(key_of(8), number)));
    }
}

// --- at random

std::uint64_t pick(Key key, std::uint64_t index, std::uint64_t below) {
  return word_at(key, index) % below;
}

std::string random_values(Key key) {
  switch (pick(key, 0, 4)) {
    case 0: return "+half";
    case 1: return "+half:kind=f16";
    case 2:
      return fmt::format("+quantise:bits={},block={}", 2 + pick(key, 1, 7), 1 + pick(key, 2, 300));
    default: return "";
  }
}

std::string random_quantise(Key key) {
  const std::uint64_t bits = 1 + pick(key, 0, 8);
  const bool is_rotated = pick(key, 1, 4) == 0;
  const char* groups[] = {"block", "block", "row", "channel"};
  const std::string group = is_rotated ? "block" : groups[pick(key, 2, 4)];
  if (!is_rotated && group == "channel" && pick(key, 3, 3) == 0)
    return fmt::format("quantise:bits={},group=channel,scale=f16,grid=artefact",
                       std::max<std::uint64_t>(bits, 2));
  constexpr std::uint64_t kBlocks[] = {8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  const std::uint64_t block = is_rotated || pick(key, 4, 2) == 0 ? kBlocks[pick(key, 5, 10)]
                              : pick(key, 6, 2) == 0             ? 8 * (1 + pick(key, 7, 1200))
                                                                 : 1 + pick(key, 8, 2000);
  const char* scales[] = {"f32", "f16", "pow2"};
  const char* roundings[] = {"grid=ends", "grid=ends,rounding=stochastic", "grid=tread"};
  return fmt::format("quantise:bits={},{},scale={},{}{}", bits,
                     group == "block" ? fmt::format("block={}", block) : "group=" + group,
                     scales[pick(key, 9, 3)], roundings[pick(key, 10, bits == 1 ? 2 : 3)],
                     is_rotated ? ",rotate=true" : "");
}

std::string random_codec(Key key) {
  const double keep = static_cast<double>(1 + pick(key, 1, 1000)) / 1000;
  const char* kinds[] = {"bf16", "f16", "f32"};
  switch (pick(key, 0, 12)) {
    case 0: return "raw";
    case 1: return fmt::format("half:kind={}", kinds[pick(key, 2, 2)]);
    case 2: return fmt::format("huffman:kind={}", kinds[pick(key, 2, 3)]);
    case 3:
      return fmt::format("sign:block={}", 1 + pick(key, 2, 2) * 16 * pick(key, 3, 60) +
                                              pick(key, 4, 2) * pick(key, 5, 6000));
    case 4:
    case 5: return fmt::format("top_k:keep={}{}", keep, random_values(derive(key, 1)));
    case 6:
      return fmt::format("random_k:keep={}{}{}", keep, pick(key, 2, 2) == 0 ? ",unbiased=true" : "",
                         random_values(derive(key, 1)));
    case 7:
      return fmt::format("low_rank:rank={},factors={}", 1 + pick(key, 2, 20),
                         kinds[pick(key, 3, 3)]);
    case 8:
      return fmt::format("auto_encoder:code={},values={}", 1 + pick(key, 2, 40),
                         kinds[pick(key, 3, 3)]);
    default: return random_quantise(derive(key, 2));
  }
}

std::vector<std::int64_t> random_shape(Key key) {
  const std::uint64_t most = test::device_elements();
  const auto size = [&](std::uint64_t i, std::uint64_t below) {
    return static_cast<std::int64_t>(pick(key, i, below));
  };
  switch (pick(key, 0, 4)) {
    case 0: return {size(1, most)};
    case 1: return {1 + size(1, 60), 1 + size(2, most / 60)};
    case 2: return {1 + size(1, 30), 8 * (1 + size(2, most / 240))};
    default: return {size(1, 5), 1 + size(2, 9), 1 + size(3, most / 45)};
  }
}

TEST_F(DeviceCodec, RandomMessages) {
  for (int number = 0; number < test::device_cases(); ++number) {
    const Key key = derive(key_of(4), static_cast<std::uint64_t>(number));
    constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64};
    Message message =
        message_of(parse_codec(random_codec(derive(key, 1))), kDtypes[pick(key, 0, 5)],
                   random_shape(derive(key, 2)), kKinds[pick(key, 1, 9)], derive(key, 3));
    if (pick(key, 2, 4) == 0) message.misalignment = 1 + pick(key, 3, 3);
    SCOPED_TRACE(fmt::format("number {}", number));
    expect_same_message(message);
    if (HasFailure()) return;  // one is enough to look at
  }
}

TEST_F(DeviceCodec, GoldenFrames) {
  for (const GoldenFrame& golden : golden_frames()) {
    const CodecSpec codec = parse_codec(golden.codec);
    if (!is_float(golden.tensor.dtype)) continue;
    if (std::holds_alternative<Transform>(codec)) continue;  // the host's alone
    const Bytes bytes = bytes_of_hex(golden.hex);
    const Frame frame = read_frame(bytes);
    SCOPED_TRACE(golden.name);
    Message message{codec, golden.tensor, {}, golden.data, {}};
    message.x.resize(golden.data.size() * bytes_of(golden.tensor.dtype));
    narrow_bytes(golden.tensor.dtype, golden.data.data(), golden.data.size(), message.x.data());
    message.seed = golden.seed;
    const std::size_t columns = matrix_shape(golden.tensor).columns;
    Floats encoder, decoder;
    if (const auto* learned = std::get_if<AutoEncoder>(&codec)) {
      const auto code = static_cast<std::size_t>(learned->code);
      encoder.resize(code * columns);
      decoder.resize(code * columns);
      for (std::size_t i = 0; i < std::min(code, columns); ++i)
        encoder[i * columns + i] = decoder[i * code + i] = 1;
    }
    const OnDevice device(message);
    const TestBuffer maps(encoder.size() * 8);
    test::to_device(maps.as(), encoder.data(), encoder.size() * 4);
    test::to_device(maps.as<float>() + encoder.size(), decoder.data(), decoder.size() * 4);
    DeviceInput input = device.input();
    input.maps = {maps.as<float>(), maps.as<float>() + encoder.size()};
    expect_same_bytes(device.encode(Memory::none, input), frame.payload, "payload");
    if (encoder.empty()) {
      const TestBuffer out(message.x.size());
      device.decode(Bytes(frame.payload.begin(), frame.payload.end()),
                    {.dtype = golden.tensor.dtype, .out = out.as()});
      Bytes found(message.x.size());
      test::from_device(found.data(), out.as(), found.size());
      expect_same_floats(floats_of(golden.tensor, found), decode_frame(frame), "decoded");
    }
  }
}

}  // namespace
}  // namespace laconic
