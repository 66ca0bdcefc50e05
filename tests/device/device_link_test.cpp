// Links whose tensors are in device memory, beside the same links in host memory: equal frames,
// equal numbers and equal memories, through steps that are committed, abandoned, spoilt and saved.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/link/link.hpp"
#include "tests/device/test_device.hpp"

namespace laconic {
namespace {

using test::TestBuffer;

using DeviceLink = test::DeviceTest;

std::string contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Both kinds of ends of one link.
struct Pair {
  explicit Pair(const LinkSpec& spec)
      : host(spec), device(spec), host_end(spec), device_end(spec) {}

  void begin(std::uint64_t step) {
    host.begin(step);
    device.begin(step);
    host_end.begin(step);
    device_end.begin(step);
  }
  void end(bool is_committed) {
    if (is_committed) {
      host.commit();
      device.commit();
    } else {
      host.abandon();
      device.abandon();
    }
  }

  void send(const TensorSpec& spec, const Bytes& x, const MessageSpec& message) {
    const Bytes frame = host.pack(ConstHostTensor{spec, x.data()}, message);
    ASSERT_TRUE(device.packs_on_device(spec, message));
    const TestBuffer there(x.size()), back(x.size());
    test::to_device(there.as(), x.data(), x.size());
    DeviceMessage packed = device.pack_on_device({spec, there.as()}, message);
    packed.wait();
    ASSERT_TRUE(packed.is_ready());
    const SharedBytes made = packed.finish();
    ASSERT_EQ(*made, frame);
    Bytes expected(x.size()), found(x.size());
    host_end.unpack(frame, HostTensor{spec, expected.data()}, message);
    device_end.unpack_on_device(made, {spec, back.as()}, message);
    test::from_device(found.data(), back.as(), found.size());
    const std::size_t count = elements_of(spec);
    std::vector<float> a(count), b(count);
    widen_bytes(spec.dtype, expected.data(), count, a.data());
    widen_bytes(spec.dtype, found.data(), count, b.data());
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_TRUE(a[i] == b[i] || (a[i] != a[i] && b[i] != b[i])) << i;
  }

  Sender host, device;
  Receiver host_end, device_end;
};

Bytes tensor_bytes(Dtype dtype, std::size_t count, std::uint64_t seed) {
  std::vector<float> x(count);
  fill_normal(key_of(seed), 0, 0.0, 1.0, std::span<float>(x));
  Bytes bytes(count * bytes_of(dtype));
  narrow_bytes(dtype, x.data(), count, bytes.data());
  return bytes;
}

void spoil(Dtype dtype, Bytes& x) {
  const float bad = std::numeric_limits<float>::infinity();
  narrow_bytes(dtype, &bad, 1, x.data() + 7 * bytes_of(dtype));
}

void expect_same_link(const char* codec, const MemorySpec& memory, Dtype dtype) {
  SCOPED_TRACE(fmt::format("{} of {}", codec, name_of(dtype)));
  LinkSpec spec{.name = "link", .codec = parse_codec(codec), .memory = memory, .seed = 5};
  Pair pair(spec);
  const TensorSpec tensor{dtype, {6, 40}}, other{dtype, {3, 40}};
  for (std::uint64_t step = 0; step < 7; ++step) {
    pair.begin(step);
    for (int number = 0; number < 3; ++number) {
      Bytes x = tensor_bytes(dtype, 240, 10 * step + static_cast<std::uint64_t>(number));
      if (step == 3 && number == 1) spoil(dtype, x);
      const Use use = step == 4 && number == 0 ? Use::bypass : Use::train;
      pair.send(tensor, x, {.number = number, .use = use});
    }
    if (step == 5) pair.send(other, tensor_bytes(dtype, 120, 99), {.number = 3});
    if (testing::Test::HasFatalFailure()) return;
    pair.end(step != 2);
  }
  // What one has saved the other goes on with.
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("laconic-device-link-{}", ::getpid());
  std::filesystem::create_directories(folder);
  pair.host.save(folder / "host");
  pair.device.save(folder / "device");
  EXPECT_EQ(contents(folder / "host"), contents(folder / "device"));
  pair.host.load(folder / "device");
  pair.device.load(folder / "host");
  pair.begin(7);
  pair.send(tensor, tensor_bytes(dtype, 240, 70), {});
  pair.send(tensor, tensor_bytes(dtype, 240, 71), {.number = 1});
  pair.end(true);
  const auto a = pair.host.residual(), b = pair.device.residual();
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  std::filesystem::remove_all(folder);
}

TEST_F(DeviceLink, FramesAndMemoriesAreThoseOfTheHost) {
  for (const char* codec : {"raw", "half", "huffman", "quantise:bits=4,block=64", "sign",
                            "quantise:bits=4,block=32,rotate=true", "top_k:keep=0.11",
                            "random_k:keep=0.2", "low_rank:rank=3"})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      expect_same_link(codec, NoMemory{}, dtype);
      if (std::string(codec) != "raw") {
        expect_same_link(codec, ErrorFeedback{}, dtype);
        expect_same_link(codec, ErrorFeedback{.reset = Reset::step}, dtype);
      }
    }
}

// A message of another shape that is not finite: the old residual stays, as on the host.
TEST_F(DeviceLink, WhatIsNotFiniteTakesNoMemoryWhateverItsShape) {
  for (const char* codec : {"quantise:bits=4,block=64", "low_rank:rank=3"}) {
    SCOPED_TRACE(codec);
    Pair pair({.name = "link", .codec = parse_codec(codec), .memory = ErrorFeedback{}, .seed = 5});
    const TensorSpec tensor{Dtype::f32, {6, 40}}, other{Dtype::f32, {3, 40}};
    for (std::uint64_t step = 0; step < 4; ++step) {
      pair.begin(step);
      pair.send(tensor, tensor_bytes(Dtype::f32, 240, step), {});
      if (step == 2) {
        Bytes x = tensor_bytes(Dtype::f32, 120, 99);
        spoil(Dtype::f32, x);
        pair.send(other, x, {.number = 1});
      }
      if (HasFatalFailure()) return;
      pair.end(true);
    }
    const auto a = pair.host.residual(), b = pair.device.residual();
    EXPECT_EQ(a.size(), 240u);
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  }
}

// Frames that are sound but for what is in them.
TEST_F(DeviceLink, RefusesWhatIsNotExpected) {
  const TensorSpec tensor{Dtype::f32, {70}};
  const Bytes x = tensor_bytes(Dtype::f32, 70, 1);
  for (const char* codec :
       {"raw", "quantise:bits=4", "sign", "top_k:keep=0.1", "random_k:keep=0.2"}) {
    SCOPED_TRACE(codec);
    LinkSpec spec{.name = "link", .codec = parse_codec(codec)};
    Sender sender(spec);
    Receiver receiver(spec);
    sender.begin(1);
    receiver.begin(1);
    const Bytes frame = sender.pack(ConstHostTensor{tensor, x.data()}, {});
    const TestBuffer out(x.size());
    const auto unpack = [&](const Bytes& bytes, int number = 0) {
      receiver.unpack_on_device(std::make_shared<const Bytes>(bytes), {tensor, out.as()},
                                {.number = number});
    };
    EXPECT_THROW(unpack(frame, 1), WireError);
    Bytes damaged = frame;
    damaged[60] ^= std::byte{1};
    EXPECT_THROW(unpack(damaged), WireError);
    const Frame sound = read_frame(frame);
    const auto with_payload = [&](std::size_t bytes, bool is_ones) {
      Bytes made;
      const std::span<std::byte> room = open_frame(made, sound.header);
      for (std::size_t i = 0; i < bytes; ++i)
        room[i] = is_ones ? std::byte{0xFF} : sound.payload[i];
      close_frame(made, 0, bytes);
      return made;
    };
    unpack(with_payload(sound.payload.size(), false));
    EXPECT_THROW(unpack(with_payload(sound.payload.size() - 1, false)), WireError);
    const bool may_be_anything =
        std::string(codec) == "raw" || std::string(codec) == "random_k:keep=0.2";
    if (!may_be_anything) {
      EXPECT_THROW(unpack(with_payload(sound.payload.size(), true)), WireError);
    }
  }
}

// What a sender puts in the place of its numbers, and what receivers decode, on the host and on a
// device: of any bits, so that nothing depends on which of the two rounds a denormal or has a NaN.
TEST_F(DeviceLink, WhatIsPutInPlaceIsWhatReceiversDecode) {
  constexpr std::size_t kCount = 600;
  const char* const codecs[] = {"raw",
                                "half",
                                "half:kind=f16",
                                "huffman",
                                "huffman:kind=f16",
                                "huffman:kind=f32",
                                "quantise:bits=4,block=64",
                                "quantise:bits=3,block=100,grid=ends,rounding=stochastic",
                                "quantise:bits=8,block=64,scale=f16",
                                "quantise:bits=4,block=32,rotate=true",
                                "sign",
                                "sign:block=32",
                                "top_k:keep=0.1",
                                "top_k:keep=0.3+half:kind=f16",
                                "top_k:keep=0.2+quantise:bits=4",
                                "random_k:keep=0.2",
                                "random_k:keep=0.5,unbiased=true+half",
                                "low_rank:rank=3",
                                "low_rank:rank=2,factors=f16"};
  // Of 32 bits: all of them; around the smallest normal number; the same and a few others.
  const auto number_of = [](int kind, std::uint32_t word) {
    if (kind == 0 || (kind == 2 && word % 8 == 0)) return word;
    return word & 0x81FFFFFFu;
  };
  std::uint64_t turn = 0;
  for (const char* text : codecs)
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
      for (int kind = 0; kind < 3; ++kind) {
        SCOPED_TRACE(fmt::format("{} of {}, kind {}", text, name_of(dtype), kind));
        std::vector<std::uint32_t> words(kCount);
        fill_words(key_of(++turn), 0, words);
        for (std::uint32_t& word : words) word = number_of(kind, word);
        Bytes x(kCount * bytes_of(dtype));
        std::memcpy(x.data(), words.data(), x.size());
        const LinkSpec spec{.name = "link",
                            .codec = parse_codec(text),
                            .memory = turn % 2 == 0 ? MemorySpec(ErrorFeedback{}) : NoMemory{},
                            .seed = turn};
        const TensorSpec tensor{dtype, {20, 30}};
        Sender sender(spec);
        Receiver host(spec), device(spec);
        sender.begin(0);
        host.begin(0);
        device.begin(0);
        const TestBuffer there(x.size()), back(x.size());
        test::to_device(there.as(), x.data(), x.size());
        ASSERT_TRUE(sender.packs_on_device(tensor, {}));
        DeviceMessage packed = sender.pack_in_place_on_device({tensor, there.as()}, {});
        packed.wait();
        const SharedBytes frame = packed.finish();
        Bytes in_place(x.size()), by_device(x.size()), by_host(x.size());
        test::from_device(in_place.data(), there.as(), x.size());
        device.unpack_on_device(frame, {tensor, back.as()}, {});
        test::from_device(by_device.data(), back.as(), x.size());
        host.unpack(*frame, HostTensor{tensor, by_host.data()}, {});
        EXPECT_EQ(in_place, by_device);
        EXPECT_EQ(in_place, by_host);
        sender.commit();
      }
}

}  // namespace
}  // namespace laconic
