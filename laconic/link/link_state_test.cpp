// What the ends of a link remember, in sequences that a caller should not make but can.
#include <filesystem>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/file/safetensors_writer.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/link/test_link.hpp"
#include "laconic/store/delta_checkpoint.hpp"

namespace laconic {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const TensorSpec kBatch{Dtype::f32, {2, 32}};
const Keys kKeys{1, 2};

LinkSpec delta_link(Delta delta = {}) {
  return {"pp.activation.0-1", parse_codec("quantise:bits=4,block=32"), delta};
}

LinkSpec feedback_link(const std::string& codec = "sign") {
  return {"pp.gradient.1-0", parse_codec(codec), ErrorFeedback{}};
}

Visit visit_of(LinkPair& link, const Floats& x) {
  link.step(x, {.samples = kKeys});
  return read_frame(link.last).header.visit;
}

// --- steps that fail

TEST(LinkState, AnAbandonedStepBringsBackWhatItsBadNumbersMadeForgotten) {
  LinkPair link(delta_link(), kBatch);
  const Floats x = normal(64, 1);
  Floats bad = x;
  bad[3] = kNan;
  link.step(x, {.samples = kKeys});
  const Bytes before = record(link.sender.references(), 1);
  link.begin();
  link.send(bad, {.samples = kKeys});
  EXPECT_FALSE(link.sender.references()->contains(1));
  EXPECT_FALSE(link.sender.references()->find(1));
  link.send(x, {.samples = kKeys});  // a first visit, now
  EXPECT_EQ(read_frame(link.last).header.visit, Visit::first);
  link.send(bad, {.samples = kKeys});
  link.abandon();
  EXPECT_EQ(record(link.sender.references(), 1), before);
  EXPECT_EQ(record(link.receiver.references(), 1), before);
  EXPECT_EQ(visit_of(link, x), Visit::difference);
  link.step(bad, {.samples = kKeys});
  EXPECT_EQ(link.sender.references()->size(), 1u);
  EXPECT_EQ(link.receiver.references()->size(), 1u);
  EXPECT_EQ(visit_of(link, x), Visit::first);
}

TEST(LinkState, ARefusalInAnAbandonedStepLeavesEndsThatAgree) {
  LinkPair link(delta_link(), kBatch);
  const Floats x = normal(64, 2);
  link.step(x, {.samples = kKeys});
  link.begin();
  Bytes message = link.pack(x, {.samples = kKeys});
  message[70] ^= std::byte{1};
  Unpacked unpacked;
  link.unpack(message, {.samples = kKeys}, &unpacked);
  ASSERT_EQ(unpacked.refused.size(), 2u);
  link.sender.forget(kKeys);
  link.send(x, {.samples = kKeys, .turn = 1});
  link.abandon();
  EXPECT_EQ(visit_of(link, x), Visit::first);
  EXPECT_EQ(visit_of(link, x), Visit::difference);
}

TEST(LinkState, ABadMessageOfAnotherShapeLeavesTheResidual) {
  LinkPair hit(feedback_link(), kBatch), spared(feedback_link(), kBatch);
  const Floats x = normal(64, 3), bad(64, kNan);
  hit.step(x);
  spared.step(x);
  hit.tensor.shape = {64};
  hit.step(bad);
  hit.tensor.shape = kBatch.shape;
  EXPECT_EQ(floats_of(hit.sender.residual()), floats_of(spared.sender.residual()));
  spared.begin();
  EXPECT_TRUE(same_bits(hit.step(x), spared.step(x)));
}

TEST(LinkState, ASpecSaysWhetherItsEndsRemember) {
  EXPECT_FALSE(has_memory({"l", Half{}, NoMemory{}}));
  EXPECT_TRUE(has_memory({"l", LowRank{2}, NoMemory{}}));
  EXPECT_TRUE(has_memory(feedback_link()));
  EXPECT_TRUE(has_memory(delta_link()));
}

TEST(LinkState, SavingNeedsTheEndOfTheStep) {
  const TemporaryFolder folder;
  LinkPair plain(feedback_link(), kBatch), delta(delta_link(), kBatch);
  const Floats x = normal(64, 5);
  plain.begin();
  plain.send(x);
  EXPECT_THROW(plain.sender.save(folder / "a"), std::logic_error);
  plain.abandon();
  plain.sender.save(folder / "a");
  delta.begin();
  delta.send(x, {.samples = kKeys});
  EXPECT_THROW(delta.sender.save(folder / "b"), std::logic_error);
  EXPECT_THROW(delta.receiver.save(folder / "c"), std::logic_error);
}

TEST(LinkState, LinksOfTwoThreadsDoNotMeet) {
  const auto run = [](const char* codec) {
    LinkPair delta({"a", parse_codec(codec), Delta{.hash_every = 1}}, kBatch);
    LinkPair plain({"b", parse_codec(codec), ErrorFeedback{}}, kBatch);
    for (int step = 0; step < 20; ++step) {
      delta.step(normal(64, step), {.samples = kKeys});
      plain.step(normal(64, step));
    }
    return delta.last;
  };
  for (const char* codec : {"quantise:bits=4,rotate=true,block=32", "top_k:keep=0.2",
                            "random_k:keep=0.2", "low_rank:rank=2", "sign"}) {
    Bytes a, b;
    std::thread other([&] { a = run(codec); });
    b = run(codec);
    other.join();
    EXPECT_EQ(a, b);
  }
}

TEST(LinkState, IntegersHaveNoMemory) {
  LinkPair plain({"l", Raw{}, ErrorFeedback{}}, {Dtype::i64, {2, 3}});
  LinkPair delta({"l", Raw{}, Delta{.first = Raw{}}}, plain.tensor);
  const std::vector<std::int64_t> ids = {1, 2, 3, 4, 5, 6};
  std::vector<std::int64_t> out(6);
  EXPECT_THROW(plain.sender.pack({plain.tensor, ids.data()}), ConfigError);
  EXPECT_THROW(delta.sender.pack({delta.tensor, ids.data()}, {.samples = kKeys}), ConfigError);
  EXPECT_THROW(delta.receiver.unpack({}, {delta.tensor, out.data()}, {.samples = kKeys}),
               ConfigError);
  const Bytes message = plain.sender.pack({plain.tensor, ids.data()}, {.use = Use::bypass});
  plain.receiver.unpack(message, {plain.tensor, out.data()}, {.use = Use::bypass});
  EXPECT_EQ(out, ids);
}

// --- references

// 65504 is finite in f16; bf16 makes 65536 of it, which in f16 is infinite. 1e300 is finite in f64.
TEST(LinkState, AReferenceIsFiniteWhateverTheFirstVisitBecomes) {
  const Keys key{1};
  LinkPair half(delta_link({.first = Half{}}), {Dtype::f16, {1, 32}});
  std::vector<std::uint16_t> x(32, 0x7BFF), out(32);
  half.begin();
  const Bytes message = half.sender.pack({half.tensor, x.data()}, {.samples = key});
  half.receiver.unpack(message, {half.tensor, out.data()}, {.samples = key});
  half.commit();
  EXPECT_FALSE(half.sender.references()->contains(1));
  EXPECT_FALSE(half.receiver.references()->contains(1));

  LinkPair raw(delta_link({.first = Raw{}}), {Dtype::f64, {1, 32}});
  std::vector<double> wide(32, 1e300), got(32);
  raw.begin();
  const Bytes wide_message = raw.sender.pack({raw.tensor, wide.data()}, {.samples = key});
  raw.receiver.unpack(wide_message, {raw.tensor, got.data()}, {.samples = key});
  raw.commit();
  EXPECT_EQ(got, wide);
  EXPECT_FALSE(raw.sender.references()->contains(1));
  EXPECT_FALSE(raw.receiver.references()->contains(1));
}

TEST(LinkState, AReferenceThatRoundsToInfinityIsNotKept) {
  const Keys key{1};
  LinkPair link(delta_link({.first = Raw{}, .reference = Reference::bf16}), {Dtype::f32, {1, 32}});
  const Floats x(32, std::numeric_limits<float>::max());
  EXPECT_TRUE(same_bits(link.step(x, {.samples = key}), x));
  EXPECT_FALSE(link.sender.references()->contains(1));
  EXPECT_FALSE(link.receiver.references()->contains(1));
}

TEST(LinkState, BytesBehindTheLastSampleAreNoticed) {
  LinkPair link(delta_link(), kBatch);
  const Floats x = normal(64, 6);
  link.begin();
  const Bytes two = link.pack(x, {.samples = kKeys});
  const Keys one{1};
  link.tensor.shape[0] = 1;
  EXPECT_THROW(link.unpack(two, {.samples = one}), WireError);
  link.tensor.shape[0] = 0;
  EXPECT_THROW(link.unpack(two), WireError);
  EXPECT_TRUE(link.unpack({}).empty());
}

// A sample comes once an epoch: with one and the same visit for all, a run of ten epochs would end
// before the first comparison.
TEST(LinkState, HashesAreSpreadOverTheSamples) {
  LinkPair link(delta_link(), {Dtype::f32, {16, 4}});
  Keys keys(16);
  for (std::size_t i = 0; i < 16; ++i) keys[i] = 16 * i;
  std::vector<int> hashes;
  for (int epoch = 0; epoch < 18; ++epoch) {
    link.step(normal(64, 7), {.samples = keys});
    hashes.push_back(0);
    for (std::size_t at = 0; at < link.last.size();) {
      const Frame frame = read_frame(link.last, at);
      hashes.back() += frame.header.hash.has_value();
      at += frame.size;
    }
  }
  int total = 0;
  for (int epoch = 1; epoch <= 16; ++epoch) {
    EXPECT_LE(hashes[epoch], 8) << epoch;
    total += hashes[epoch];
  }
  EXPECT_EQ(total, 16);  // each sample once in 16 visits
  EXPECT_EQ(hashes[17], hashes[1]);
}

// --- files

TEST(LinkState, AnEndThatHasSeenNothingSavesThat) {
  const TemporaryFolder folder;
  LinkPair old(delta_link(), kBatch);
  old.step(normal(64, 8), {.samples = kKeys});
  old.sender.save(folder / "sender");
  old.receiver.save(folder / "receiver");
  LinkPair fresh(delta_link(), kBatch);
  fresh.sender.save(folder / "sender");
  fresh.receiver.save(folder / "receiver");
  LinkPair again(delta_link(), kBatch);
  again.sender.load(folder / "sender");
  again.receiver.load(folder / "receiver");
  EXPECT_EQ(again.sender.references(), nullptr);
  EXPECT_EQ(again.receiver.references(), nullptr);
  EXPECT_EQ(visit_of(again, normal(64, 9)), Visit::first);

  old.sender.save(folder / "other");  // and a link without references leaves none behind
  LinkPair plain(feedback_link(), kBatch);
  plain.sender.save(folder / "other");
  plain.sender.load(folder / "other");
  EXPECT_FALSE(std::filesystem::exists(folder / "other.references"));
}

TEST(LinkState, MissingReferencesAreNotTakenForNone) {
  const TemporaryFolder folder;
  LinkPair link(delta_link(), kBatch);
  link.step(normal(64, 10), {.samples = kKeys});
  link.sender.save(folder / "sender");
  std::filesystem::remove(folder / "sender.references");
  EXPECT_THROW(link.sender.load(folder / "sender"), FileError);
  EXPECT_THROW(link.receiver.load(folder / "receiver"), FileError);
  EXPECT_EQ(visit_of(link, normal(64, 11)), Visit::difference);  // as it was
}

TEST(LinkState, LoadingIsAllOrNothing) {
  const TemporaryFolder folder;
  LinkPair link({"l", parse_codec("low_rank:rank=2"), Delta{}}, kBatch);
  link.step(normal(64, 12), {.samples = kKeys});
  LinkPair low(feedback_link("low_rank:rank=2"), kBatch);
  low.step(normal(64, 12));
  const Floats residual = floats_of(low.sender.residual());
  LinkPair other(feedback_link("low_rank:rank=2"), kBatch);
  other.step(normal(64, 13));
  other.sender.save(folder / "x");
  link.sender.save(folder / "y");
  std::filesystem::rename(folder / "y.references", folder / "x.references");
  EXPECT_THROW(low.sender.load(folder / "x"), FileError);  // it keeps no references
  EXPECT_EQ(floats_of(low.sender.residual()), residual);
}

void write_floats(const std::string& path, const std::string& name, const Floats& values,
                  const SafetensorsMetadata& metadata) {
  SafetensorsWriter writer(path, {{name, Dtype::f32, {static_cast<std::int64_t>(values.size())}}},
                           metadata);
  writer.write(as_bytes(std::span<const float>(values)));
  writer.commit();
}

TEST(LinkState, FilesOfSomethingElseAreRefused) {
  const TemporaryFolder folder;
  Sender sender(feedback_link());
  write_floats(folder / "model", "wte.weight", {1, 2}, {});
  EXPECT_THROW(sender.load(folder / "model"), FileError);
  write_floats(folder / "nan", "0.residual", {1, kNan}, {{"0.shape", "2"}});
  EXPECT_THROW(sender.load(folder / "nan"), FileError);
  write_floats(folder / "basis", "0.basis", {1, kNan}, {{"0.shape", "2"}});
  EXPECT_THROW(sender.load(folder / "basis"), FileError);
  write_floats(folder / "shape", "0.residual", {1, 2}, {{"0.shape", "1,2"}});
  EXPECT_THROW(sender.load(folder / "shape"), FileError);
  write_floats(folder / "name", "x.residual", {1, 2}, {{"x.shape", "2"}});
  EXPECT_THROW(sender.load(folder / "name"), FileError);
  EXPECT_TRUE(sender.residual().empty());
}

TEST(LinkState, ReferencesThatDoNotFitTogetherAreRefused) {
  const TemporaryFolder folder;
  Receiver receiver(delta_link());
  DeltaStore store({.record_bytes = 128});
  const auto room = store.stage(1, 0);
  std::fill(room->begin(), room->end(), std::byte{0});
  store.commit();
  save_records(store, folder / "zero.references");
  EXPECT_THROW(receiver.load(folder / "zero"), FileError);
  const auto write = [&](const std::string& name, std::int64_t keys) {
    SafetensorsWriter writer(folder / name, {{"keys", Dtype::i64, {keys}},
                                             {"visits", Dtype::i32, {0}},
                                             {"records", Dtype::u8, {0, std::int64_t{1} << 60}}});
    writer.write(Bytes(static_cast<std::size_t>(keys) * 8));
    writer.write({});
    writer.write({});
    writer.commit();
  };
  write("odd.references", 1);
  EXPECT_THROW(receiver.load(folder / "odd"), FileError);
  write("none.references", 0);
  receiver.load(folder / "none");
  EXPECT_EQ(receiver.references(), nullptr);
}

// An 8-bit record is a payload, and not any bytes are one.
TEST(LinkState, DamagedEightBitReferencesAreRefused) {
  const TemporaryFolder folder;
  LinkPair link(delta_link({.reference = Reference::q8}), kBatch);
  link.step(normal(64, 14), {.samples = kKeys});
  DeltaStore store({.record_bytes = link.sender.references()->record_bytes()});
  const auto room = store.stage(1, 1);
  std::fill(room->begin(), room->end(), std::byte{0xFF});
  store.commit();
  link.sender.save(folder / "sender");
  save_records(store, folder / "sender.references");
  EXPECT_THROW(link.sender.load(folder / "sender"), FileError);
}

TEST(LinkState, SamplesWithoutElementsAndBatchesWithoutSamples) {
  for (const Reference kind : {Reference::f32, Reference::bf16, Reference::q8}) {
    const TemporaryFolder folder;
    LinkPair link(delta_link({.reference = kind}), {Dtype::f32, {2, 0}});
    for (int visit = 0; visit < 3; ++visit) link.step({}, {.samples = kKeys});
    link.sender.save(folder / "sender");
    link.receiver.save(folder / "receiver");
    link.sender.load(folder / "sender");
    link.receiver.load(folder / "receiver");
    EXPECT_EQ(link.sender.references()->find(1)->visits, 3u);
    link.step({}, {.samples = kKeys});
    LinkPair none(delta_link({.reference = kind}), {Dtype::f32, {0, 8}});
    none.step({});
    EXPECT_EQ(none.last_bytes, 0u);
  }
}

}  // namespace
}  // namespace laconic
