// Delta links when something goes wrong: lost, reordered and damaged frames (T14), references that
// have drifted apart, numbers that are not finite, full budgets, slow disks (T15), restarts.
#include <chrono>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/link/test_link.hpp"

namespace laconic {
namespace {

constexpr std::size_t kValues = 96;

TensorSpec samples_of(std::size_t samples) {
  return {Dtype::f32, {static_cast<std::int64_t>(samples), 8, 12}};
}

LinkSpec hashed_link(Delta delta = {.first = Half{}, .hash_every = 4}) {
  return {"pp.activation.0-1", parse_codec("quantise:bits=4,block=32"), delta};
}

Floats drifting(const Keys& keys, int epoch) {
  Floats all;
  for (const std::uint64_t key : keys) {
    const Floats one = normal(kValues, 1000 + key) + normal(kValues, 77 * epoch + key, 0.05);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

void expect_same_references(LinkPair& link, const Keys& keys) {
  for (const std::uint64_t key : keys) {
    const auto sent = link.sender.references()->find(key);
    const auto received = link.receiver.references()->find(key);
    ASSERT_TRUE(sent && received) << key;
    EXPECT_EQ(sent->visits, received->visits) << key;
    EXPECT_TRUE(std::ranges::equal(sent->bytes, received->bytes)) << key;
  }
}

// What a runtime does with refusals: tell the sender, which sends those samples anew.
void recover(LinkPair& link, const Keys& keys, int epoch, const Unpacked& unpacked) {
  Keys again;
  for (const Refusal& refusal : unpacked.refused) again.push_back(refusal.key);
  if (again.empty()) return;
  link.sender.forget(again);
  const TensorSpec whole = link.tensor;
  link.tensor = samples_of(again.size());
  const Floats got = link.send(drifting(again, epoch), {.samples = again, .turn = 1});
  EXPECT_LT(relative_error(got, drifting(again, epoch)), 0.01);
  link.tensor = whole;
  expect_same_references(link, keys);
}

struct Fault {
  const char* name;
  std::function<void(Bytes&)> act;
  std::size_t refused;  // of 4 samples
};

std::size_t frame_at(const Bytes& message, int index) {
  std::size_t at = 0;
  for (int i = 0; i < index; ++i) at += read_frame(message, at).size;
  return at;
}

TEST(DeltaFault, DamageIsFoundAndRepaired) {
  const Keys keys{3, 1, 4, 15};
  const std::vector<Fault> faults = {
      {"a bit of a payload", [](Bytes& m) { m[frame_at(m, 3) - 9] ^= std::byte{4}; }, 2},
      {"a bit of the first header", [](Bytes& m) { m[17] ^= std::byte{1}; }, 4},
      {"the tail cut off", [](Bytes& m) { m.resize(m.size() - 1); }, 1},
      {"everything cut off", [](Bytes& m) { m.clear(); }, 4},
      {"a frame dropped",
       [](Bytes& m) { m.erase(m.begin() + frame_at(m, 1), m.begin() + frame_at(m, 2)); }, 3},
      {"two frames exchanged",
       [](Bytes& m) {
         std::rotate(m.begin() + frame_at(m, 1), m.begin() + frame_at(m, 2),
                     m.begin() + frame_at(m, 3));
       },
       2},
      {"a frame twice",
       [](Bytes& m) {
         const Bytes copy(m.begin(), m.begin() + frame_at(m, 1));
         m.erase(m.begin() + frame_at(m, 1), m.begin() + frame_at(m, 2));
         m.insert(m.begin(), copy.begin(), copy.end());
       },
       1},
  };
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.name);
    LinkPair link(hashed_link(), samples_of(4));
    for (int epoch = 0; epoch < 6; ++epoch) {
      link.begin();
      Bytes message = link.pack(drifting(keys, epoch), {.samples = keys});
      if (epoch % 3 == 2) fault.act(message);
      Unpacked unpacked;
      link.unpack(message, {.samples = keys}, &unpacked);
      EXPECT_EQ(unpacked.refused.size(), epoch % 3 == 2 ? fault.refused : 0);
      // Forgotten at once, as by the sender: the step may be abandoned before anything is repaired.
      for (const Refusal& refusal : unpacked.refused)
        EXPECT_FALSE(link.receiver.references()->contains(refusal.key)) << refusal.key;
      recover(link, keys, epoch, unpacked);
      link.commit();
      expect_same_references(link, keys);
    }
  }
}

// A whole message is lost and nobody notices: the counters do, at the next visit.
TEST(DeltaFault, ALostMessageIsFoundAtTheNextVisit) {
  LinkPair link(hashed_link(), samples_of(2));
  const Keys keys{1, 2}, others{3, 4};
  link.step(drifting(keys, 0), {.samples = keys});
  link.begin();
  link.pack(drifting(keys, 1), {.samples = keys});  // never arrives
  Unpacked unpacked;
  const MessageSpec next{.number = 1, .samples = others};
  link.unpack(link.pack(drifting(others, 1), next), next, &unpacked);
  EXPECT_TRUE(unpacked.refused.empty());
  link.commit();
  link.begin();
  const Floats got =
      link.unpack(link.pack(drifting(keys, 2), {.samples = keys}), {.samples = keys}, &unpacked);
  ASSERT_EQ(unpacked.refused.size(), 2u);
  EXPECT_NE(unpacked.refused[0].why.find("visits at byte 12: 2, expected 1"), std::string::npos)
      << unpacked.refused[0].why;
  EXPECT_TRUE(std::isnan(got[0]));
  recover(link, keys, 2, unpacked);
}

// Memory that rots, or two ends that compute differently: the periodic hash finds it.
TEST(DeltaFault, ReferencesThatDifferAreFoundByTheHash) {
  LinkPair link(hashed_link(), samples_of(1));
  const Keys key{6};
  link.step(drifting(key, 0), {.samples = key});
  link.receiver.begin(99);
  const auto staged = link.receiver.references()->stage(6, 1);
  std::fill(staged->begin(), staged->end(), std::byte{0});
  link.receiver.commit();
  int found_after = 0;
  for (int visit = 1; visit <= 4 && found_after == 0; ++visit) {
    link.begin();
    Unpacked unpacked;
    link.unpack(link.pack(drifting(key, visit), {.samples = key}), {.samples = key}, &unpacked);
    if (!unpacked.refused.empty()) {
      found_after = visit;
      EXPECT_NE(unpacked.refused[0].why.find("hash"), std::string::npos);
      recover(link, key, visit, unpacked);
    }
    link.commit();
  }
  EXPECT_GT(found_after, 0);  // within hash_every visits
}

TEST(DeltaFault, ASampleThatIsNotFiniteStartsAnewAtBothEnds) {
  LinkPair link(hashed_link(), samples_of(2));
  const Keys keys{1, 2};
  for (const int bad_visit : {0, 1, 5}) {
    for (int visit = 0; visit <= bad_visit; ++visit) {
      Floats x = drifting(keys, visit);
      if (visit == bad_visit) x[7] = std::numeric_limits<float>::infinity();
      const Floats got = link.step(x, {.samples = keys});
      EXPECT_EQ(is_finite(got.data(), kValues), visit != bad_visit);
      EXPECT_TRUE(is_finite(got.data() + kValues, kValues));
    }
    EXPECT_FALSE(link.sender.references()->contains(1));
    EXPECT_FALSE(link.receiver.references()->contains(1));
    EXPECT_TRUE(link.sender.references()->contains(2));
    const Floats x = drifting(keys, 9);
    EXPECT_LT(relative_error(link.step(x, {.samples = keys}), x), 0.05);
    expect_same_references(link, keys);
  }
}

TEST(DeltaFault, BeyondTheBudgetSamplesStandAlone) {
  LinkPair link(hashed_link({.first = Half{}, .budget_bytes = 3 * 4096}), samples_of(1));
  for (int epoch = 0; epoch < 3; ++epoch)
    for (std::uint64_t key = 0; key < 6; ++key) {
      const Keys keys{key};
      link.step(drifting(keys, epoch), {.samples = keys});
      const Visit visit = read_frame(link.last).header.visit;
      EXPECT_EQ(visit, key >= 3 ? Visit::alone : epoch == 0 ? Visit::first : Visit::difference);
    }
  EXPECT_EQ(link.sender.references()->size(), 3u);
  EXPECT_EQ(link.receiver.references()->size(), 3u);
}

// Frames of such samples carry no key: only their place in the message says whose they are.
TEST(DeltaFault, AFrameThatStandsAloneIsNeverTakenForAnothers) {
  const Keys keys{1, 2, 3, 4};
  for (int dropped = 0; dropped < 4; ++dropped) {
    LinkPair link(hashed_link({.first = Raw{}, .budget_bytes = 1}),
                  samples_of(4));  // no references
    const Floats x = drifting(keys, 0);
    link.begin();
    Bytes message = link.pack(x, {.samples = keys});
    message.erase(message.begin() + frame_at(message, dropped),
                  message.begin() + frame_at(message, dropped + 1));
    Unpacked unpacked;
    const Floats got = link.unpack(message, {.samples = keys}, &unpacked);
    ASSERT_EQ(unpacked.refused.size(), 4u - dropped);
    for (int i = 0; i < 4; ++i)
      EXPECT_TRUE(i < dropped ? std::equal(got.begin() + i * kValues,
                                           got.begin() + (i + 1) * kValues, x.begin() + i * kValues)
                              : std::isnan(got[i * kValues]))
          << i << " of " << dropped;
    Unpacked again;  // and the link goes on
    const MessageSpec answer{.samples = keys, .turn = 1};
    EXPECT_TRUE(same_bits(link.unpack(link.pack(x, answer), answer, &again), x) ||
                !again.refused.empty());
    link.unpack(link.pack(x, answer), answer, &again);
    EXPECT_TRUE(again.refused.empty());
  }
}

// A boundary's sender is ahead: it has packed further messages, some with the same sample, before
// it hears of a refusal. The ends agree when all is answered.
TEST(DeltaFault, WhatWasPackedBeforeTheSenderForgotIsRefusedToo) {
  const Keys first{2, 1}, second{3, 1}, third{1, 1};
  for (const bool is_warm : {false, true}) {
    LinkPair link(hashed_link(), samples_of(2));
    if (is_warm) {
      link.step(drifting(first, 0), {.samples = first});
      link.step(drifting(second, 0), {.samples = second});
    }
    link.begin();
    Bytes a = link.pack(drifting(first, 1), {.number = 0, .samples = first});
    const Bytes b = link.pack(drifting(second, 2), {.number = 1, .samples = second});
    const Bytes c = link.pack(drifting(third, 3), {.number = 2, .samples = third});
    a.back() ^= std::byte{1};
    const auto answer = [&](const Keys& all, int epoch, const Unpacked& unpacked, int number) {
      Keys again;
      for (const Refusal& refusal : unpacked.refused) {
        again.push_back(refusal.key);
        EXPECT_EQ(refusal.key, all[refusal.index]);
      }
      link.tensor = samples_of(again.size());
      link.sender.forget(again);
      const MessageSpec message{.number = number, .samples = again, .turn = 1};
      const Floats x = drifting(again, epoch);
      EXPECT_LT(relative_error(link.send(x, message), x), 0.05);
      link.tensor = samples_of(2);
    };
    Unpacked unpacked;
    link.unpack(a, {.number = 0, .samples = first}, &unpacked);
    ASSERT_EQ(unpacked.refused.size(), 1u);
    answer(first, 1, unpacked, 0);
    link.unpack(b, {.number = 1, .samples = second}, &unpacked);
    ASSERT_EQ(unpacked.refused.size(), 1u);
    EXPECT_EQ(unpacked.refused[0].index, 1u);
    answer(second, 2, unpacked, 1);
    link.unpack(c, {.number = 2, .samples = third}, &unpacked);
    ASSERT_EQ(unpacked.refused.size(), 2u);
    answer(third, 3, unpacked, 2);
    link.commit();
    expect_same_references(link, {1, 2, 3});
    link.step(drifting(first, 4), {.samples = first});  // the next step begins with a clean slate
  }
}

TEST(DeltaFault, MessagesComeInAnyOrderAndFramesOfOthersAreRefused) {
  const Keys a{1, 2}, b{3, 4};
  LinkPair link(hashed_link(), samples_of(2));
  link.begin();
  const Bytes first = link.pack(drifting(a, 0), {.number = 7, .samples = a});
  const Bytes second = link.pack(drifting(b, 0), {.number = 3, .samples = b});
  Unpacked unpacked;
  link.unpack(second, {.number = 3, .samples = b}, &unpacked);
  EXPECT_TRUE(unpacked.refused.empty());
  link.unpack(first, {.number = 7, .samples = a}, &unpacked);
  EXPECT_TRUE(unpacked.refused.empty());
  for (const int number : {1, 6, 8}) {
    link.begin();
    --link.steps;
    link.unpack(link.pack(drifting(a, 0), {.number = 7, .samples = a}),
                {.number = number, .samples = a}, &unpacked);
    EXPECT_FALSE(unpacked.refused.empty()) << number;
    EXPECT_NE(unpacked.refused[0].why.find("sequence"), std::string::npos)
        << unpacked.refused[0].why;
  }
}

// One end has lost a reference. The place that it freed there is taken by another sample, for which
// the other end must find room too.
TEST(DeltaFault, AFullBudgetRecoversFromEndsThatCameApart) {
  LinkPair link(hashed_link({.first = Half{}, .budget_bytes = 2 * 4096, .hash_every = 1}),
                samples_of(1));
  for (const std::uint64_t key : {1, 2}) {
    const Keys keys{key};
    link.step(drifting(keys, 0), {.samples = keys});
  }
  link.sender.forget(Keys{1});
  for (int epoch = 1; epoch < 4; ++epoch)
    for (const std::uint64_t key : {3, 1, 2}) {
      const Keys keys{key};
      link.begin();
      Unpacked unpacked;
      link.unpack(link.pack(drifting(keys, epoch), {.samples = keys}), {.samples = keys},
                  &unpacked);
      EXPECT_TRUE(epoch < 3 || unpacked.refused.empty()) << key;
      recover(link, key == 2 ? keys : Keys{}, epoch, unpacked);
      link.commit();
    }
  expect_same_references(link, {2, 3});
  EXPECT_EQ(link.receiver.references()->size(), 2u);
}

// T15 at the level of links: a disk with random delays changes nothing.
TEST(DeltaFault, ReferencesOnDiskGiveTheSameBitsAsInMemory) {
  const TemporaryFolder folder;
  LinkPair memory(hashed_link({.first = Half{}, .reference = Reference::bf16}), samples_of(2));
  LinkPair disk(hashed_link({.first = Half{},
                             .reference = Reference::bf16,
                             .folder = folder.path(),
                             .budget_bytes = 1 << 20}),
                samples_of(2));
  const auto keys_of = [](int step) {
    const auto at = static_cast<std::uint64_t>(step);
    return Keys{at * 7 % 20, (at * 7 + 3) % 20};
  };
  for (int step = 0; step < 1000; ++step) {
    const Keys keys = keys_of(step), next = keys_of(step + 1);
    const Floats x = drifting(keys, step / 10);
    const Floats wanted = memory.step(x, {.samples = keys});
    disk.begin();
    disk.sender.prefetch(next);
    disk.receiver.prefetch(next);
    ASSERT_TRUE(same_bits(disk.send(x, {.samples = keys}), wanted)) << step;
    if (step % 5 == 4) {  // and again, after an overflow
      disk.abandon();
      --disk.steps;
      disk.begin();
      ASSERT_TRUE(same_bits(disk.send(x, {.samples = keys}), wanted)) << step;
    }
    disk.commit();
  }
}

TEST(DeltaFault, ACheckpointContinuesBitForBit) {
  const TemporaryFolder folder;
  for (const Reference kind : {Reference::f32, Reference::q8}) {
    const LinkSpec spec = hashed_link({.first = Half{}, .reference = kind});
    LinkPair link(spec, samples_of(2));
    const Keys a{1, 2}, b{3, 1};
    link.step(drifting(a, 0), {.samples = a});
    link.step(drifting(b, 1), {.samples = b});
    link.sender.save(folder / "sender");
    link.receiver.save(folder / "receiver");
    LinkPair again(spec, samples_of(2));
    again.sender.load(folder / "sender");
    again.receiver.load(folder / "receiver");
    again.steps = link.steps;
    for (int epoch = 2; epoch < 5; ++epoch)
      for (const Keys& keys : {a, b}) {
        const Floats x = drifting(keys, epoch);
        EXPECT_TRUE(same_bits(again.step(x, {.samples = keys}), link.step(x, {.samples = keys})));
        EXPECT_EQ(again.last, link.last);
      }
    again.sender.save(folder / "sender2");
    link.sender.save(folder / "sender3");
    EXPECT_TRUE(std::ranges::equal(MappedFile(folder / "sender2.references").bytes(),
                                   MappedFile(folder / "sender3.references").bytes()));
  }
}

TEST(DeltaFault, AnEndWithoutReferencesIsColdNotWrong) {  // a restart that lost one side
  LinkPair link(hashed_link(), samples_of(2));
  const Keys keys{1, 2};
  link.step(drifting(keys, 0), {.samples = keys});
  LinkPair fresh(hashed_link(), samples_of(2));
  link.sender.begin(7);
  fresh.receiver.begin(7);
  const Bytes message = link.pack(drifting(keys, 1), {.samples = keys});
  Unpacked unpacked;
  fresh.unpack(message, {.samples = keys}, &unpacked);
  EXPECT_EQ(unpacked.refused.size(), 2u);
}

}  // namespace
}  // namespace laconic
