// Delta links: the tests T5 ... T16 of the AC-SGD specification that need no training.
#include <algorithm>
#include <set>

#include "laconic/base/error.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/link/test_link.hpp"

namespace laconic {
namespace {

constexpr std::int64_t kTokens = 12, kWidth = 40;
constexpr std::size_t kSample = kTokens * kWidth;

TensorSpec batch_of(std::size_t samples) {
  return {Dtype::f32, {static_cast<std::int64_t>(samples), kTokens, kWidth}};
}

LinkSpec delta_link(const std::string& codec, Delta delta = {.first = Raw{}}) {
  return {"pp.activation.0-1", parse_codec(codec), delta};
}

// The activations of a sample drift slowly from epoch to epoch.
Floats activation(std::uint64_t key, int epoch, double drift = 0.02) {
  Floats x = normal(kSample, 1000 + key);
  for (int e = 1; e <= epoch; ++e) x = x + normal(kSample, 7919 * e + key, drift);
  return x;
}

Floats activations(const Keys& keys, int epoch) {
  Floats all;
  for (const std::uint64_t key : keys) {
    const Floats one = activation(key, epoch);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

Keys shuffled(std::size_t count, std::uint64_t seed) {
  Keys keys(count);
  for (std::size_t i = 0; i < count; ++i) keys[i] = permuted(key_of(seed), i, count);
  return keys;
}

void expect_equal_references(LinkPair& link, const Keys& keys) {
  for (const std::uint64_t key : keys) {
    const auto sent = link.sender.references()->find(key);
    const auto received = link.receiver.references()->find(key);
    ASSERT_EQ(sent.has_value(), received.has_value()) << key;
    if (!sent) continue;
    EXPECT_EQ(sent->visits, received->visits) << key;
    EXPECT_TRUE(std::ranges::equal(sent->bytes, received->bytes)) << key;
  }
}

// T5
TEST(DeltaLink, AnUnchangedSampleCostsNothingAndKeepsEveryBit) {
  for (const char* codec : {"quantise:bits=2", "quantise:bits=3,block=64", "quantise:bits=4",
                            "quantise:bits=4,rotate=true", "top_k:keep=0.1", "sign"}) {
    SCOPED_TRACE(codec);
    LinkPair link(delta_link(codec), batch_of(1));
    const Keys key{5};
    const Floats x = activation(5, 0);
    EXPECT_TRUE(same_bits(link.step(x, {.samples = key}), x));
    for (int visit = 0; visit < 3; ++visit)
      EXPECT_TRUE(same_bits(link.step(x, {.samples = key}), x));
  }
}

// T6: from 10 % error, a constant sample is approached by about the quantiser's error each visit.
TEST(DeltaLink, AConstantSampleIsApproachedGeometrically) {
  for (const int bits : {2, 3, 4, 6, 8}) {
    SCOPED_TRACE(bits);
    LinkPair link(delta_link("quantise:bits=" + std::to_string(bits)), batch_of(1));
    const Keys key{1};
    const Floats x = activation(1, 0);
    link.step(x + normal(kSample, 77, 0.1), {.samples = key});
    double before = 0.1;
    for (int visit = 0; visit < 12 && before > 1e-6; ++visit) {
      const double error = relative_error(link.step(x, {.samples = key}), x);
      EXPECT_LT(error, before * (bits == 2 ? 0.75 : bits == 3 ? 0.4 : 0.2));
      before = error;
    }
    EXPECT_LT(before, bits == 2 ? 1e-2 : 1e-5);
  }
}

TEST(DeltaLink, ReferencesOfFewerBitsHaveAFloor) {  // and T8
  const Keys key{1};
  const Floats x = activation(1, 0);
  const auto floor_of = [&](Reference kind) {
    LinkPair link(delta_link("quantise:bits=4", {.first = Raw{}, .reference = kind}), batch_of(1));
    link.step(x + normal(kSample, 77, 0.1), {.samples = key});
    double error = 0;
    for (int visit = 0; visit < 12; ++visit)
      error = relative_error(link.step(x, {.samples = key}), x);
    return error;
  };
  EXPECT_LT(floor_of(Reference::f32), 1e-6);
  EXPECT_LT(floor_of(Reference::bf16), 5e-4);
  EXPECT_GT(floor_of(Reference::bf16), 1e-6);
  EXPECT_LT(floor_of(Reference::q8), 2e-3);
  EXPECT_GT(floor_of(Reference::q8), floor_of(Reference::bf16));
}

// T7: a reference that has nothing to do with the sample makes the difference longer by sqrt(2),
// and so the error, which is in proportion to what is quantised.
TEST(DeltaLink, AnUnrelatedReferenceMakesTheDifferenceLonger) {
  for (const int bits : {4, 6, 8}) {
    const std::string codec = "quantise:bits=" + std::to_string(bits);
    LinkPair direct({"direct", parse_codec(codec)}, batch_of(100));
    LinkPair link(delta_link(codec), batch_of(100));
    const Keys keys = shuffled(100, 1);
    const Floats x = normal(100 * kSample, 1), unrelated = normal(100 * kSample, 2);
    link.step(unrelated, {.samples = keys});
    const double error = relative_error(link.step(x, {.samples = keys}), x);
    EXPECT_NEAR(error / relative_error(direct.step(x), x), std::sqrt(2.0), 0.05 * std::sqrt(2.0))
        << bits;
  }
}

// T9
TEST(DeltaLink, LargeActivationsSurvive) {
  for (const Reference kind : {Reference::f32, Reference::bf16, Reference::q8})
    for (const char* first : {"raw", "half", "quantise"}) {
      LinkPair link(delta_link("quantise:bits=4", {.first = parse_codec(first), .reference = kind}),
                    batch_of(1));
      const Keys key{3};
      Floats x = activation(3, 0);
      for (float& v : x) v *= 1e5F;
      for (int visit = 0; visit < 6; ++visit) {
        const Floats got = link.step(x, {.samples = key});
        ASSERT_TRUE(is_finite(got.data(), got.size()));
        EXPECT_LT(relative_error(got, x), 0.02);
      }
    }
}

// T10, T11: five epochs, reshuffled, some samples dropped in each, microbatches of 1 and 8, the two
// ends on different instruction sets.
TEST(DeltaLink, BothEndsHoldTheSameBits) {
  constexpr std::size_t kSamples = 24;
  std::size_t messages = 0;
  for (const char* codec :
       {"quantise:bits=2,block=64", "quantise:bits=3,group=row",
        "quantise:bits=4,group=channel,scale=f16", "quantise:bits=4,rounding=stochastic,grid=ends",
        "sign:block=64", "top_k:keep=0.1+quantise:bits=4", "low_rank:rank=2"})
    for (const Reference kind : {Reference::f32, Reference::bf16, Reference::q8})
      for (const std::size_t microbatch : {1, 8}) {
        SCOPED_TRACE(codec);
        LinkPair link(delta_link(codec, {.first = Half{}, .reference = kind, .hash_every = 2}),
                      batch_of(microbatch));
        for (int epoch = 0; epoch < 5; ++epoch) {
          const Keys order = shuffled(kSamples, 31 + epoch);
          for (std::size_t at = epoch % 3; at + microbatch <= kSamples; at += microbatch) {
            const Keys keys(order.begin() + at, order.begin() + at + microbatch);
            const Floats x = activations(keys, epoch);
            link.begin();
            const Bytes message = on_target(-1, [&] { return link.pack(x, {.samples = keys}); });
            const Floats got =
                on_target(0, [&] { return link.unpack(message, {.samples = keys}); });
            link.commit();
            messages += microbatch;
            expect_equal_references(link, keys);
            // The stage computes with the reference itself.
            for (std::size_t i = 0; kind == Reference::f32 && i < microbatch; ++i)
              EXPECT_EQ(std::memcmp(record(link.sender.references(), keys[i]).data(),
                                    got.data() + i * kSample, kSample * 4),
                        0);
          }
        }
      }
  EXPECT_GT(messages, 4000u);
}

// T12, and the counter of T13
TEST(DeltaLink, TheFirstVisitIsDenseWheneverItComes) {
  LinkPair link(delta_link("quantise:bits=2"), batch_of(2));
  const auto visits_of = [&](const Keys& keys) {
    std::vector<Visit> visits;
    link.step(activations(keys, static_cast<int>(link.steps)), {.samples = keys});
    for (std::size_t at = 0; at < link.last.size();) {
      const Frame frame = read_frame(link.last, at);
      visits.push_back(frame.header.visit);
      at += frame.size;
    }
    return visits;
  };
  using V = std::vector<Visit>;
  EXPECT_EQ(visits_of({1, 2}), (V{Visit::first, Visit::first}));
  EXPECT_EQ(visits_of({2, 3}), (V{Visit::difference, Visit::first}));  // 3 was dropped before
  EXPECT_EQ(visits_of({3, 1}), (V{Visit::difference, Visit::difference}));
  EXPECT_EQ(link.sender.references()->find(1)->visits, 2u);
  EXPECT_EQ(link.receiver.references()->find(3)->visits, 2u);
}

// T13
TEST(DeltaLink, EvaluationRecomputationAndAbandonedStepsAdvanceNothing) {
  LinkPair link(delta_link("quantise:bits=3"), batch_of(2)),
      plain(delta_link("quantise:bits=3"), batch_of(2));
  const Keys keys{4, 9};
  for (int epoch = 0; epoch < 4; ++epoch) {
    const Floats x = activations(keys, epoch);
    link.begin();
    link.send(activations(keys, 50), {.samples = keys});  // this step overflows
    link.abandon();
    --link.steps;
    link.begin();
    EXPECT_TRUE(same_bits(link.send(x, {.use = Use::evaluation}), x));
    link.send(activations(keys, 60), {.number = 1, .use = Use::bypass});
    const Floats got = link.send(x, {.samples = keys});
    link.commit();
    // Frames are numbered differently, but nothing of the codec depends on that here.
    EXPECT_TRUE(same_bits(got, plain.step(x, {.samples = keys})));
    expect_equal_references(link, keys);
    EXPECT_EQ(link.sender.references()->find(4)->visits, static_cast<unsigned>(epoch + 1));
  }
}

TEST(DeltaLink, ASampleMayComeTwiceInAStep) {
  LinkPair link(delta_link("quantise:bits=3"), batch_of(3));
  const Keys keys{8, 8, 8};
  for (int step = 0; step < 3; ++step) link.step(activations(keys, step), {.samples = keys});
  EXPECT_EQ(link.sender.references()->find(8)->visits, 9u);
  expect_equal_references(link, keys);
}

// T16
TEST(DeltaLink, BytesOnTheWireAreTheFormula) {
  const std::string codec = "quantise:bits=3,group=channel,scale=f16,grid=artefact";
  LinkPair link(delta_link(codec), batch_of(4));
  const Keys keys{0, 1, 2, 3};
  link.step(activations(keys, 0), {.samples = keys});
  const std::size_t header = 40 + 2 * 8 + 4;  // two dims of a sample, and the check sum
  EXPECT_EQ(link.last_bytes, 4 * (header + kSample * 4));
  link.step(activations(keys, 1), {.samples = keys});
  const std::size_t parameters = 10;
  EXPECT_EQ(link.last_bytes, 4 * (header + parameters + kSample * 3 / 8 + 2 * kWidth));
}

TEST(DeltaLink, OtherDtypesTravelToo) {
  for (const Dtype dtype : {Dtype::f64, Dtype::f16, Dtype::bf16}) {
    LinkPair link(delta_link("quantise:bits=8"), batch_of(1));
    link.tensor.dtype = dtype;
    const Keys key{1};
    std::vector<double> x(kSample, 0.5), out(kSample);  // room for any dtype; the same bits for all
    for (int visit = 0; visit < 3; ++visit) {
      link.begin();
      const Bytes message = link.sender.pack({link.tensor, x.data()}, {.samples = key});
      EXPECT_TRUE(link.receiver.unpack(message, {link.tensor, out.data()}, {.samples = key})
                      .refused.empty());
      link.commit();
      EXPECT_EQ(std::memcmp(x.data(), out.data(), kSample * bytes_of(dtype)), 0);
    }
    expect_equal_references(link, key);
  }
}

TEST(DeltaLink, WrongKeysAndSizesAreRefused) {
  LinkPair link(delta_link("quantise:bits=4"), batch_of(2));
  const Keys one{1}, two{1, 2};
  const Floats x = activations(two, 0);
  link.begin();
  EXPECT_THROW(link.pack(x, {.samples = one}), ConfigError);
  link.pack(x, {.samples = two});
  link.tensor.shape[2] = 20;
  EXPECT_THROW(link.pack(x, {.samples = two}), ConfigError);
}

// A hint given in one step is for the next, whatever begins or is abandoned between them.
TEST(DeltaLink, WhatWasPrefetchedIsThereInTheNextStep) {
  for (const bool has_shadow : {false, true}) {
    const TemporaryFolder folder;
    const Keys early{0, 1, 2, 3}, late{10, 11, 12, 13};
    LinkPair link(delta_link("quantise:bits=4",
                             {.first = Raw{}, .folder = folder.path(), .budget_bytes = 1 << 20}),
                  batch_of(4));
    const auto drain = [&] {
      link.sender.references()->drain();
      link.receiver.references()->drain();
    };
    link.step(activations(early, 0), {.samples = early});
    drain();
    for (int step = 0; step < 3; ++step) {  // until the early ones are in the file alone
      link.step(activations(late, step), {.samples = late});
      drain();
    }
    link.begin();
    link.send(activations(late, 3), {.samples = late});
    link.sender.prefetch(early);
    link.receiver.prefetch(early);
    link.commit();
    drain();
    if (has_shadow) {
      link.begin();
      link.send(activations(early, 1), {.use = Use::bypass});
      link.abandon();
    }
    link.step(activations(early, 1), {.samples = early});
    for (const DeltaStore* store : {link.sender.references(), link.receiver.references()})
      EXPECT_EQ(store->stats().prefetch_hits, early.size()) << has_shadow;
  }
}

}  // namespace
}  // namespace laconic
