// Payloads nobody vouches for, by the host and by a device: both refuse the same, in the same
// words, and what they take they decode, add and remember as the same numbers. Seeds are those of
// the fuzz target of codecs, and changes to what codecs make.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "laconic/base/denormals.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/base/test_effort.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/codec/device_codec.hpp"
#include "laconic/codec/kernel/conversion.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/link/link.hpp"
#include "tests/device/test_device.hpp"
#include "tests/fuzz/payload_input.hpp"

namespace laconic {
namespace {

using fuzz::kPayloadCases;
using test::TestBuffer;
using DeviceFuzz = test::DeviceTest;

// As it will be compared: any NaN is one.
Bytes settled(const TensorSpec& spec, Bytes bytes) {
  if (!is_float(spec.dtype)) return bytes;
  std::vector<float> x(elements_of(spec));
  if (x.empty()) return bytes;
  widen_bytes(spec.dtype, bytes.data(), x.size(), x.data());
  Bytes all(x.size() * sizeof(float));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t bits = x[i] != x[i] ? 0x7FC00000u : std::bit_cast<std::uint32_t>(x[i]);
    std::memcpy(all.data() + i * sizeof bits, &bits, sizeof bits);
  }
  return all;
}

struct FuzzOutcome {
  std::string refusal;  // empty: none
  Bytes decoded;
  bool operator==(const FuzzOutcome&) const = default;
};

template <class Unpack>
FuzzOutcome fuzz_outcome_of(const Unpack& unpack) {
  try {
    return {"", unpack()};
  } catch (const WireError& error) {
    return {error.what(), {}};
  }
}

// Both ends of one case of the fuzz target.
class FuzzEnds {
 public:
  explicit FuzzEnds(std::size_t number)
      : spec_{.name = "link", .codec = fuzz::codec_of(number), .seed = 3, .has_warm_start = false},
        tensor_(kPayloadCases[number].tensor),
        bytes_(elements_of(tensor_) * bytes_of(tensor_.dtype)),
        host_(spec_),
        device_(spec_),
        there_(bytes_) {
    host_.begin(1);
    device_.begin(1);
    is_on_device_ = device_.unpacks_on_device(tensor_, {});
    if (!is_on_device_) return;
    Sender sender(spec_);
    sender.begin(1);
    const Bytes zeros(bytes_);
    sample_ = sender.pack(ConstHostTensor{tensor_, zeros.data()}, {});
  }

  bool is_on_device() const { return is_on_device_; }

  // Whether both took it.
  bool try_payload(ByteView payload) {
    const Bytes frame = frame_of(payload);
    const FuzzOutcome on_host = fuzz_outcome_of([&] {
      Bytes out(bytes_);
      host_.unpack(frame, HostTensor{tensor_, out.data()}, {});
      return settled(tensor_, out);
    });
    const FuzzOutcome on_device = fuzz_outcome_of([&] {
      device_.unpack_on_device(std::make_shared<const Bytes>(frame), {tensor_, there_.as()}, {});
      return settled(tensor_, brought(there_, bytes_));
    });
    EXPECT_EQ(on_device.refusal, on_host.refusal);
    EXPECT_EQ(on_device.decoded, on_host.decoded);
    if (!on_host.refusal.empty()) return false;
    if (tensor_.dtype == Dtype::f32) try_sum_and_reference(payload);
    return true;
  }

 private:
  Bytes frame_of(ByteView payload) const {
    Bytes frame;
    const Frame sound = read_frame(sample_);
    open_frame(frame, sound.header);
    frame.resize(header_bytes(sound.header));
    frame.insert(frame.end(), payload.begin(), payload.end());
    frame.resize(frame.size() + kFrameCrcBytes);
    close_frame(frame, 0, payload.size());
    return frame;
  }

  static Bytes brought(const TestBuffer& buffer, std::size_t bytes) {
    Bytes host(bytes);
    test::from_device(host.data(), buffer.as(), bytes);
    return host;
  }

  void try_sum_and_reference(ByteView payload) {
    const std::size_t count = elements_of(tensor_);
    std::vector<float> before(count), decoded(count), after(count), out(count);
    fill_normal(key_of(8), 0, 0.0, 1.0, std::span<float>(before));
    const CodecInput input;
    decode(spec_.codec, payload, input, {tensor_, decoded.data()});
    decode_difference(spec_.codec, payload, before.data(), after.data(), input,
                      {tensor_, out.data()});
    std::vector<float> sum = before;
    {
      const ScopedDenormals flush(true);
      kernel::conversion().add(sum.data(), decoded.data(), count);
    }
    Bytes staged(staged_bytes(spec_.codec, tensor_));
    stage(spec_.codec, tensor_, payload, staged);
    const TestBuffer in(staged.size()), scratch(device_scratch_bytes(spec_.codec, tensor_)),
        old(bytes_);
    test::to_device(in.as(), staged.data(), staged.size());
    test::to_device(old.as(), before.data(), bytes_);
    const DeviceInput seed{.seed = payload_seed(spec_.codec, payload)};
    const auto deliver = [&](const DeviceSink& sink) {
      device_decode(spec_.codec, tensor_, in.as<std::byte>(), seed, sink, scratch.as<std::byte>(),
                    codec_stream());
    };
    deliver({.kind = Delivery::difference,
             .out = there_.as(),
             .before = old.as<float>(),
             .after = there_.as<float>()});
    EXPECT_EQ(settled(tensor_, brought(there_, bytes_)), settled(tensor_, bytes_in(after)));
    deliver({.kind = Delivery::add, .out = old.as()});
    EXPECT_EQ(settled(tensor_, brought(old, bytes_)), settled(tensor_, bytes_in(sum)));
  }

  static Bytes bytes_in(const std::vector<float>& x) {
    Bytes bytes(x.size() * sizeof(float));
    if (!x.empty()) std::memcpy(bytes.data(), x.data(), bytes.size());
    return bytes;
  }

  LinkSpec spec_;
  TensorSpec tensor_;
  std::size_t bytes_;
  Receiver host_, device_;
  TestBuffer there_;
  Bytes sample_;
  bool is_on_device_ = false;
};

FuzzEnds* ends_of(std::size_t number, std::map<std::size_t, std::unique_ptr<FuzzEnds>>& all) {
  auto& ends = all[number];
  if (ends == nullptr) ends = std::make_unique<FuzzEnds>(number);
  return ends->is_on_device() ? ends.get() : nullptr;
}

TEST_F(DeviceFuzz, EverySeedOfTheHostsCodecs) {
  const char* source = std::getenv("LACONIC_SOURCE");
  ASSERT_TRUE(source) << "ctest sets LACONIC_SOURCE";
  std::map<std::size_t, std::unique_ptr<FuzzEnds>> all;
  int taken = 0, refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(source) /
                                                               "tests/fuzz/corpus/payload")) {
    SCOPED_TRACE(entry.path().string());
    const MappedFile file(entry.path().string());
    if (file.bytes().size() < 2) continue;
    const fuzz::PayloadInput input(file.bytes());
    FuzzEnds* const ends = ends_of(input.number, all);
    if (ends == nullptr) continue;
    Bytes payload = input.rest;
    if (input.kind != fuzz::PayloadKind::payload)
      payload = fuzz::encoded(input.codec(), input.tensor(),
                              fuzz::tensor_of(input.tensor(), input.rest), input.seed);
    if (input.kind == fuzz::PayloadKind::change) fuzz::change(payload, input.rest);
    ++(ends->try_payload(payload) ? taken : refused);
    if (HasFailure()) return;
  }
  EXPECT_GT(taken, 50);
  EXPECT_GT(refused, 50);
}

// What a codec makes of any bits, with some bytes changed, or a byte more or less.
TEST_F(DeviceFuzz, ChangedPayloadsOfEveryCodec) {
  const std::uint64_t turns = is_thorough() ? 600 : 25;
  std::map<std::size_t, std::unique_ptr<FuzzEnds>> all;
  int refused = 0;
  for (std::size_t number = 0; number < std::size(kPayloadCases); ++number) {
    FuzzEnds* const ends = ends_of(number, all);
    if (ends == nullptr) continue;
    const TensorSpec& tensor = kPayloadCases[number].tensor;
    int taken = 0;
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      SCOPED_TRACE(fmt::format("{} [{}], turn {}", kPayloadCases[number].codec,
                               fmt::join(tensor.shape, ", "), turn));
      const Key key = derive(derive(key_of(11), number), turn);
      std::vector<std::uint32_t> words(64);
      fill_words(key, 0, words);
      const auto* bytes = reinterpret_cast<const std::byte*>(words.data());
      Bytes payload = fuzz::encoded(fuzz::codec_of(number), tensor,
                                    fuzz::tensor_of(tensor, ByteView(bytes, words.size() * 4)),
                                    std::uint8_t(turn));
      if (turn % 2 == 1) fuzz::change(payload, ByteView(bytes + 7, 2 * (1 + turn / 2 % 3)));
      if (turn % 8 == 5) payload.push_back(bytes[0]);
      if (turn % 8 == 7 && !payload.empty()) payload.pop_back();
      ++(ends->try_payload(payload) ? taken : refused);
      if (HasFailure()) return;
    }
    EXPECT_GT(taken, 0) << kPayloadCases[number].codec;
  }
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace laconic
