// Another codec between two steps: what links remember goes on, and both ends must be told.
#include <fmt/format.h>

#include "laconic/base/error.hpp"
#include "laconic/link/codec_override.hpp"
#include "laconic/link/test_link.hpp"

namespace laconic {
namespace {

const CodecSpec kCoarse = Quantise{.bits = 2};
const CodecSpec kFine = Quantise{.bits = 6};

void set_codec(LinkPair& link, const CodecSpec& codec) {
  link.sender.set_codec(codec);
  link.receiver.set_codec(codec);
}

TEST(Recode, ResidualsGoOn) {
  LinkPair link({"link", kCoarse, ErrorFeedback{}}, kMatrix);
  link.step(normal(kElements, 1));
  const Floats owed = residual_of(link);
  ASSERT_GT(norm(owed), 0);
  set_codec(link, kFine);
  EXPECT_TRUE(same_bits(residual_of(link), owed));
  const Floats x = normal(kElements, 2);
  const Floats got = link.step(x);
  EXPECT_LT(relative_error(got, x + owed), 0.1);
  EXPECT_LT(norm(residual_of(link)), 0.2 * norm(owed));
}

// Bit for bit: a link that was of this codec all along, with the same memory.
TEST(Recode, IsTheLinkOfThatCodecWithTheSameMemory) {
  const Keys keys = {7, 8, 9};
  const TensorSpec samples{Dtype::f32, {3, 80}};
  LinkPair link({"link", kCoarse, Delta{.first = Half{}}}, samples);
  LinkPair other({"link", kFine, Delta{.first = Half{}}}, samples);
  const Floats first = normal(240, 1);
  EXPECT_TRUE(same_bits(link.step(first, {.samples = keys}), other.step(first, {.samples = keys})));
  set_codec(link, kFine);
  for (std::uint64_t s = 2; s < 5; ++s) {
    const Floats x = first + normal(240, s, 0.1);
    EXPECT_TRUE(same_bits(link.step(x, {.samples = keys}), other.step(x, {.samples = keys})));
    EXPECT_TRUE(link.last == other.last);
  }
}

TEST(Recode, WarmStartsOfLowRankBeginAnewWithAnotherKindOnly) {
  const auto after = [](const std::vector<CodecSpec>& codecs) {
    LinkPair link({"link", LowRank{2}}, kMatrix);
    for (std::uint64_t s = 0; s < 3; ++s) link.step(normal(kElements, 1));
    for (const CodecSpec& codec : codecs) set_codec(link, codec);
    return link.step(normal(kElements, 5));
  };
  const Floats warm = after({});
  EXPECT_TRUE(same_bits(after({LowRank{2}}), warm));
  LinkPair fresh({"link", LowRank{2}}, kMatrix);
  for (std::uint64_t s = 0; s < 3; ++s) fresh.begin(), fresh.commit();
  const Floats cold = fresh.step(normal(kElements, 5));
  EXPECT_FALSE(same_bits(warm, cold));
  EXPECT_TRUE(same_bits(after({kFine, LowRank{2}}), cold));
}

TEST(Recode, AnEndThatWasNotToldRefuses) {
  for (const bool is_sender : {false, true}) {
    LinkPair link({"link", kCoarse}, kMatrix);
    if (is_sender)
      link.sender.set_codec(kFine);
    else
      link.receiver.set_codec(kFine);
    link.begin();
    EXPECT_THROW(link.send(normal(kElements, 1)), WireError);
  }
}

TEST(Recode, WhatCannotBeIsRefusedAndChangesNothing) {
  LinkPair link({"link", kCoarse, ErrorFeedback{}}, kMatrix);
  EXPECT_THROW(link.sender.set_codec(Quantise{.bits = 99}), ConfigError);
  EXPECT_THROW(link.receiver.set_codec(AutoEncoder{}), ConfigError);  // has no memory
  EXPECT_EQ(link.sender.spec().codec, kCoarse);
  EXPECT_EQ(link.receiver.spec().codec, kCoarse);
}

TEST(CodecOverride, SaysWhatItIs) {
  EXPECT_EQ(to_text(CodecOverride{}), "as configured");
  EXPECT_EQ(to_text(CodecOverride{.codec = kFine}), "quantise:bits=6");
  EXPECT_EQ(to_text(CodecOverride{.is_bypassed = true, .codec = kFine}), "bypassed");
  EXPECT_EQ(effective_codec({}, kCoarse), kCoarse);
  EXPECT_EQ(effective_codec({.codec = kFine}, kCoarse), kFine);
  EXPECT_EQ(effective_codec({.is_bypassed = true, .codec = kFine}, kCoarse), kCoarse);
}

}  // namespace
}  // namespace laconic
