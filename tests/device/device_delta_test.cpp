// Links with references whose tensors are in device memory, beside the same links in host memory:
// equal frames, numbers, refusals, records and checkpoints, wherever the records lie.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/codec/convert.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/link/link.hpp"
#include "tests/device/test_device.hpp"

namespace laconic {
namespace {

using test::TestBuffer;
using Keys = std::vector<std::uint64_t>;

class DeviceDelta : public test::DeviceTest {};

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Stored {
  std::uint32_t visits = 0;
  Bytes bytes;
  bool operator==(const Stored&) const = default;
};

std::map<std::uint64_t, Stored> records_of(DeltaStore* store) {
  std::map<std::uint64_t, Stored> all;
  if (store == nullptr) return all;
  for (const auto& [key, visits] : store->stored_keys()) {
    Stored& stored = all[key];
    stored.visits = visits;
    stored.bytes.resize(store->record_bytes());
    store->read_stored(key, stored.bytes);
  }
  return all;
}

std::vector<float> floats_of(Dtype dtype, const Bytes& bytes) {
  std::vector<float> values(bytes.size() / bytes_of(dtype));
  widen_bytes(dtype, bytes.data(), values.size(), values.data());
  return values;
}

// Both kinds of ends of one link.
struct Ends {
  Ends(const LinkSpec& host_spec, const LinkSpec& device_spec)
      : host(host_spec), device(device_spec), host_end(host_spec), device_end(device_spec) {}

  void begin(std::uint64_t step) {
    host.begin(step);
    device.begin(step);
    host_end.begin(step);
    device_end.begin(step);
  }
  void end(bool is_committed) {
    drain();
    for (Sender* sender : {&host, &device}) is_committed ? sender->commit() : sender->abandon();
    for (Receiver* end : {&host_end, &device_end}) is_committed ? end->commit() : end->abandon();
    const auto sent = records_of(host.references()), got = records_of(host_end.references());
    EXPECT_TRUE(records_of(device.references()) == sent);
    EXPECT_TRUE(records_of(device_end.references()) == got);
    EXPECT_TRUE(is_apart || sent == got);
  }

  // Packs at both; equal frames.
  Bytes pack(const TensorSpec& spec, const Bytes& x, const MessageSpec& message) {
    const Bytes frames = host.pack(ConstHostTensor{spec, x.data()}, message);
    if (!device.packs_on_device(spec, message)) {
      EXPECT_EQ(device.pack(ConstHostTensor{spec, x.data()}, message), frames);
      return frames;
    }
    auto there = std::make_unique<TestBuffer>(x.size());
    test::to_device(there->as(), x.data(), x.size());
    DeviceMessage packed = device.pack_on_device({spec, there->as()}, message);
    under_way.push_back({std::move(there), std::move(packed), frames});
    return frames;
  }

  // What the device has packed; late, as it leaves in a run.
  void drain() {
    for (UnderWay& message : under_way) {
      message.packed.wait();
      EXPECT_TRUE(message.packed.is_ready());
      EXPECT_TRUE(*message.packed.finish() == message.expected);
    }
    under_way.clear();
  }

  // Unpacks at both; equal numbers and refusals, which are returned.
  std::vector<Refusal> unpack(const TensorSpec& spec, const Bytes& frames,
                              const MessageSpec& message) {
    const std::size_t bytes = elements_of(spec) * bytes_of(spec.dtype);
    Bytes expected(bytes), found(bytes);
    const Unpacked a = host_end.unpack(frames, HostTensor{spec, expected.data()}, message);
    EXPECT_TRUE(device_end.unpacks_on_device(spec, message));
    const TestBuffer out(bytes);
    const Unpacked b = device_end.unpack_on_device(std::make_shared<const Bytes>(frames),
                                                   {spec, out.as()}, message);
    test::from_device(found.data(), out.as(), bytes);
    const std::vector<float> p = floats_of(spec.dtype, expected), q = floats_of(spec.dtype, found);
    for (std::size_t i = 0; i < p.size(); ++i)
      EXPECT_TRUE(p[i] == q[i] || (std::isnan(p[i]) && std::isnan(q[i])))
          << i << ": " << p[i] << ", " << q[i];
    EXPECT_EQ(a.refused.size(), b.refused.size());
    for (std::size_t i = 0; i < std::min(a.refused.size(), b.refused.size()); ++i) {
      EXPECT_EQ(a.refused[i].key, b.refused[i].key);
      EXPECT_EQ(a.refused[i].why, b.refused[i].why);
      EXPECT_EQ(a.refused[i].index, b.refused[i].index);
    }
    return a.refused;
  }

  struct UnderWay {
    std::unique_ptr<TestBuffer> tensor;
    DeviceMessage packed;
    Bytes expected;
  };
  std::vector<UnderWay> under_way;
  Sender host, device;
  Receiver host_end, device_end;
  bool is_apart = false;  // the ends remember different things
};

struct Case {
  const char* codec = "quantise:bits=4,block=64,scale=f16";
  const char* first = "half";
  Reference reference = Reference::f32;
  Dtype dtype = Dtype::f32;
  int hash_every = 3;
  std::uint64_t records = 0;         // that the budget admits; 0: all
  std::uint64_t device_records = 0;  // that the GPU's memory may hold
  bool is_on_disk = false;
};

constexpr std::int64_t kRows = 3, kColumns = 37;  // samples begin at odd places
constexpr std::size_t kCount = kRows * kColumns;
constexpr std::uint64_t kVisits = 14, kMessages = 3, kSamples = 8;

LinkSpec link_of(const Case& c, const std::string& folder, bool is_on_device) {
  Delta delta{.first = parse_codec(c.first), .reference = c.reference, .hash_every = c.hash_every};
  delta.budget_bytes = c.records * kSlotAlignment;
  if (c.is_on_disk && c.records == 0) delta.budget_bytes = 1000 * kSlotAlignment;
  if (is_on_device) delta.device_bytes = c.device_records * record_bytes(c.reference, kCount);
  if (is_on_device && c.is_on_disk) delta.folder = folder;
  return {.name = "pp.activation.0-1",
          .codec = parse_codec(c.codec),
          .memory = delta,
          .seed = 5,
          .numbering = {.turns = 4, .samples = 16}};
}

// A run of some epochs, with everything that can befall a sample in it.
class Course {
 public:
  explicit Course(const Case& c)
      : case_(c),
        ends_(link_of(c, folder_.path(), false), link_of(c, folder_.path(), true)),
        random_(c.hash_every * 100 + static_cast<int>(c.reference)) {}

  void run() {
    for (std::uint64_t step = 0; step < kVisits; ++step) {
      SCOPED_TRACE(fmt::format("step {}", step));
      ends_.begin(step);
      Fidelity fidelity;
      ends_.device.measure_fidelity(step == 9 ? &fidelity : nullptr);  // so the host packs
      for (std::uint64_t i = 0; i < kMessages; ++i) send(step, i);
      const Keys next = keys_of(step + 1, 0);
      ends_.device.prefetch(next);
      ends_.device_end.prefetch(next);
      ends_.end(step % 5 != 3);
      for (DeltaStore* store : {ends_.device.references(), ends_.device_end.references()})
        on_device_ = std::max(on_device_, store->stats().device_bytes);
      if (step == 6 || step == 10) reload(step == 10);
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(refused_, 0u);
    EXPECT_EQ(on_device_ > 0, case_.device_records > 0);
    EXPECT_LE(on_device_, case_.device_records * record_bytes(case_.reference, kCount));
    EXPECT_TRUE(different_ > 0 || case_.hash_every > 1);
  }

 private:
  // Two of the step's messages have new and old samples; the last has one of theirs again, and one
  // of its own twice.
  Keys keys_of(std::uint64_t step, std::uint64_t number) {
    Keys keys;
    for (std::uint64_t i = 0; i < 3; ++i) keys.push_back((step * 6 + number * 3 + i) % kSamples);
    if (number + 1 == kMessages) keys.insert(keys.end(), {keys[0], step % kSamples});
    if (step > 7) keys[0] += 100;  // later ones that find no room in a budget
    return keys;
  }

  // Activations change little from visit to visit; now and then they are of no use.
  Bytes tensor(std::uint64_t step, const Keys& keys) {
    const float bad[] = {std::numeric_limits<float>::infinity(), 3.4e38f, 65504.0f, 1e-42f};
    std::vector<float> x(keys.size() * kCount), drift(kCount);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::span<float> sample(x.data() + i * kCount, kCount);
      fill_normal(key_of(1000 + keys[i]), 0, 0.0, 1.0, sample);
      fill_normal(key_of(step * 977 + keys[i]), 0, 0.0, 0.05, std::span<float>(drift));
      for (std::size_t j = 0; j < kCount; ++j) sample[j] += drift[j];
      if (random_() % 5 == 0) sample[random_() % kCount] = bad[random_() % std::size(bad)];
    }
    Bytes bytes(x.size() * bytes_of(case_.dtype));
    narrow_bytes(case_.dtype, x.data(), x.size(), bytes.data());
    return bytes;
  }

  TensorSpec spec_of(std::size_t samples) const {
    return {case_.dtype, {static_cast<std::int64_t>(samples), kRows, kColumns}};
  }

  void send(std::uint64_t step, std::uint64_t number) {
    Keys keys = keys_of(step, number);
    Bytes x = tensor(step, keys);
    MessageSpec message{.number = static_cast<int>(number), .samples = keys};
    Bytes frames = ends_.pack(spec_of(keys.size()), x, message);
    if (step % 4 == 2 && number != 1) frames[random_() % frames.size()] ^= std::byte{4};
    auto refused = ends_.unpack(spec_of(keys.size()), frames, message);
    const std::size_t sample_bytes = kCount * bytes_of(case_.dtype);
    while (!refused.empty()) {
      refused_ += refused.size();
      ASSERT_LT(++message.turn, 4u) << refused[0].why;
      Keys again;
      Bytes rest;
      for (const Refusal& refusal : refused) {
        different_ += refusal.why.find("references differ") != std::string::npos;
        again.push_back(refusal.key);
        const auto begin = x.begin() + static_cast<std::ptrdiff_t>(refusal.index * sample_bytes);
        rest.insert(rest.end(), begin, begin + static_cast<std::ptrdiff_t>(sample_bytes));
      }
      keys = std::move(again);
      x = std::move(rest);
      ends_.host.forget(keys);
      ends_.device.forget(keys);
      message.samples = keys;
      frames = ends_.pack(spec_of(keys.size()), x, message);
      refused = ends_.unpack(spec_of(keys.size()), frames, message);
    }
  }

  // Equal files, and what one has saved the other goes on with.
  void reload(bool is_damaged_after) {
    const auto exchange = [&](auto& host, auto& device) {
      host.save(folder_ / "host");
      device.save(folder_ / "device");
      EXPECT_TRUE(contents(folder_ / "host.references") == contents(folder_ / "device.references"));
      host.load(folder_ / "device");
      device.load(folder_ / "host");
    };
    exchange(ends_.host, ends_.device);
    exchange(ends_.host_end, ends_.device_end);
    if (!is_damaged_after) return;
    // A reference that both receivers have wrong: a hash must tell.
    ends_.is_apart = true;
    for (Receiver* end : {&ends_.host_end, &ends_.device_end}) {
      DeltaStore& store = *end->references();
      const auto keys = store.stored_keys();
      ASSERT_FALSE(keys.empty());
      Bytes bytes(store.record_bytes());
      store.read_stored(keys[0].key, bytes);
      bytes[bytes.size() - 1] ^= std::byte{1};
      std::ranges::copy(bytes, store.stage(keys[0].key, keys[0].visits)->begin());
      store.commit();
    }
  }

  Case case_;
  TemporaryFolder folder_;
  Ends ends_;
  std::mt19937 random_;
  std::size_t refused_ = 0, different_ = 0;
  std::uint64_t on_device_ = 0;  // bytes, at most
};

void expect_same_case(const Case& c) {
  SCOPED_TRACE(fmt::format("{} after {}, {} of {}, hash_every={}, {} records, {} on the device{}",
                           c.codec, c.first, name_in(kReferenceNames, c.reference),
                           name_of(c.dtype), c.hash_every, c.records, c.device_records,
                           c.is_on_disk ? ", on disk" : ""));
  Course(c).run();
}

TEST_F(DeviceDelta, AllKindsOfRecordsAreThoseOfTheHost) {
  for (const Reference reference : {Reference::f32, Reference::bf16, Reference::q8})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      const bool is_raw = dtype == Dtype::f32 || reference == Reference::bf16;
      expect_same_case({.first = is_raw ? "raw" : "half",
                        .reference = reference,
                        .dtype = dtype,
                        .hash_every = is_raw ? 1 : 3});
    }
}

TEST_F(DeviceDelta, AllCodecsAreThoseOfTheHost) {
  for (const char* codec : {"raw", "half", "huffman", "sign", "top_k:keep=0.1", "random_k:keep=0.2",
                            "quantise:bits=4,block=32,rotate=true", "low_rank:rank=2"})
    expect_same_case({.codec = codec, .first = codec, .reference = Reference::bf16});
}

TEST_F(DeviceDelta, AdmissionDoesNotDependOnThePlace) {
  for (const std::uint64_t records : {1, 5})
    for (const std::uint64_t device_records : {0, 3})
      expect_same_case({.first = "raw",
                        .reference = Reference::bf16,
                        .records = records,
                        .device_records = device_records});
}

TEST_F(DeviceDelta, PlacesDoNotMatter) {
  for (const Reference reference : {Reference::f32, Reference::bf16, Reference::q8}) {
    expect_same_case({.reference = reference, .is_on_disk = true});
    expect_same_case({.reference = reference, .device_records = 4, .is_on_disk = true});
  }
  expect_same_case({.device_records = 4});
  expect_same_case({.device_records = 100});
  expect_same_case({.device_records = 100, .is_on_disk = true});
}

}  // namespace
}  // namespace laconic
