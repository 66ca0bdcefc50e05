#include <numeric>

#include "laconic/link/link.hpp"

#include "laconic/base/error.hpp"
#include "laconic/file/safetensors.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/link/test_link.hpp"

namespace laconic {
namespace {

LinkSpec plain(const std::string& codec) {
  return {"test.link", parse_codec(codec)};
}

LinkSpec with_feedback(const std::string& codec, Reset reset = Reset::never) {
  return {"test.link", parse_codec(codec), ErrorFeedback{reset}};
}

TEST(Link, WithoutMemoryCarriesWhatTheCodecDoes) {
  const Floats x = normal(24 * 40, 1);
  for (const char* codec : {"raw", "half", "quantise:bits=4,block=64", "sign", "top_k:keep=0.1",
                            "random_k:keep=0.5", "low_rank:rank=4"}) {
    SCOPED_TRACE(codec);
    LinkPair link(plain(codec), kMatrix);
    link.begin();
    const Floats got = link.send(x);
    const Frame frame = read_frame(link.last);
    Floats decoded(x.size());
    decode(frame.header.codec, frame.payload, {}, {kMatrix, decoded.data()});
    EXPECT_TRUE(same_bits(got, decoded));
    EXPECT_LT(relative_error(got, x), 1.0);
  }
}

std::string refused_field(LinkPair& link, ByteView bytes, const MessageSpec& message = {}) {
  try {
    link.unpack(bytes, message);
  } catch (const WireError& error) {
    return error.field();
  }
  return "";
}

TEST(Link, AMessageOfAnotherNumberTurnOrStepIsRefused) {
  const Floats x = normal(24 * 40, 2);
  LinkPair link(plain("half"), kMatrix);
  link.begin();
  const Bytes first = link.pack(x);
  const Bytes second = link.pack(x, {.number = 1});
  EXPECT_EQ(refused_field(link, second), "sequence");
  EXPECT_EQ(refused_field(link, first, {.number = 1}), "sequence");
  EXPECT_EQ(refused_field(link, first, {.turn = 1}), "sequence");
  EXPECT_EQ(refused_field(link, second, {.number = 1}), "");  // in any order
  EXPECT_EQ(refused_field(link, first), "");
  link.begin();
  EXPECT_EQ(refused_field(link, first), "sequence");
}

TEST(Link, AMessageForSomethingElseIsRefused) {
  const Floats x = normal(24 * 40, 3);
  LinkPair link(plain("half"), kMatrix);
  link.begin();
  const Bytes message = link.pack(x);
  LinkPair other_codec(plain("half:kind=f16"), kMatrix);
  LinkPair other_shape(plain("half"), {Dtype::f32, {40, 24}});
  LinkPair other_dtype(plain("half"), {Dtype::f64, {24, 20}});
  EXPECT_EQ(refused_field(other_codec, message), "codec");
  EXPECT_EQ(refused_field(other_shape, message), "shape");
  EXPECT_EQ(refused_field(other_dtype, message), "shape");
  EXPECT_EQ(refused_field(link, message, {.use = Use::bypass}), "codec");
  Bytes longer = message;
  longer.push_back(std::byte{1});
  EXPECT_EQ(refused_field(link, longer), "frame");
  for (std::size_t bit = 0; bit < message.size() * 8; bit += 7) {
    Bytes flipped = message;
    flipped[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_NE(refused_field(link, flipped), "") << bit;
  }
  EXPECT_EQ(refused_field(link, message), "");  // none of that has moved the link
}

TEST(Link, ImpossibleLinksAreRefusedWithEveryReason) {
  EXPECT_THROW(Sender({"a/b", AutoEncoder{}, ErrorFeedback{}}), ConfigError);
  LinkSpec bad{"", Quantise{.bits = 9},
               Delta{.first = AutoEncoder{}, .folder = "x", .hash_every = 0}};
  EXPECT_EQ(check(bad).size(), 5u) << to_text(check(bad));
  EXPECT_TRUE(check(with_feedback("low_rank")).empty());
  EXPECT_EQ(to_text(MemorySpec(Delta{.reference = Reference::bf16})), "delta:reference=bf16");
}

// --- error feedback

// L1: what was decoded, plus what is still owed, is what was put in; whatever the policy encodes.
TEST(ErrorFeedback, NothingIsLostInTheLongRun) {
  const TemporaryFolder folder;
  for (const char* codec : {"quantise:bits=2,block=32", "sign", "top_k:keep=0.05",
                            "random_k:keep=0.05", "low_rank:rank=3", "half"}) {
    SCOPED_TRACE(codec);
    LinkPair link(with_feedback(codec), kMatrix);
    Floats sum_in(24 * 40, 0), sum_out = sum_in;
    for (int step = 0; step < 6; ++step) {
      link.begin();
      for (std::uint64_t microbatch = 0; microbatch < 4; ++microbatch) {
        const Floats x = normal(24 * 40, 100 + 10 * step + microbatch);
        const MessageSpec message{.number = static_cast<int>(microbatch),
                                  .use = microbatch == 1 ? Use::bypass : Use::train};
        sum_in = sum_in + x;
        sum_out = sum_out + link.send(x, message);
      }
      link.commit();
    }
    // What is missing is the residual, which a raw codec would now deliver.
    link.sender.save(folder / "sender");
    const SafetensorsFile saved(folder / "sender");
    Floats residual(24 * 40);
    std::memcpy(residual.data(), saved.bytes("0.residual").data(), residual.size() * 4);
    EXPECT_LT(relative_error(sum_out + residual, sum_in), 1e-5);
    EXPECT_TRUE(same_bits(residual_of(link), residual));
  }
}

// L3: the mean of what arrives approaches the mean of what was sent like 1 / N; without memory it
// does not.
TEST(ErrorFeedback, TheMeanConvergesAndWithoutMemoryDoesNot) {
  const Floats x = normal(24 * 40, 5);
  const auto error_after = [&](const LinkSpec& spec, int messages) {
    LinkPair link(spec, kMatrix);
    Floats sum(x.size(), 0);
    for (int i = 0; i < messages; ++i) sum = sum + link.step(x);
    for (float& v : sum) v /= static_cast<float>(messages);
    return relative_error(sum, x);
  };
  const std::string codec = "quantise:bits=2,block=64";
  EXPECT_LT(error_after(with_feedback(codec), 100), 0.2 * error_after(with_feedback(codec), 10));
  EXPECT_GT(error_after(plain(codec), 100), 0.9 * error_after(plain(codec), 10));
}

// L4: one message a step, so that the residual acts across steps; Reset::step turns it off.
TEST(ErrorFeedback, CarriesOverStepsUnlessReset) {
  const Floats x = normal(24 * 40, 6);
  LinkPair kept(with_feedback("sign"), kMatrix);
  LinkPair reset(with_feedback("sign", Reset::step), kMatrix);
  const Floats first = kept.step(x);
  EXPECT_TRUE(same_bits(reset.step(x), first));
  EXPECT_FALSE(same_bits(kept.step(x), first));
  EXPECT_TRUE(same_bits(reset.step(x), first));
}

TEST(ErrorFeedback, AnotherShapeStartsAfresh) {
  const Floats x = normal(24 * 40, 7);
  LinkPair link(with_feedback("sign"), kMatrix);
  const Floats fresh = link.step(x);
  EXPECT_FALSE(same_bits(link.step(x), fresh));
  link.tensor.shape = {12, 80};
  EXPECT_TRUE(same_bits(link.step(x), fresh));
}

// L5: a skipped step leaves every bit as it was, warm start included.
TEST(ErrorFeedback, AnAbandonedStepNeverWas) {
  for (const char* codec : {"sign", "low_rank:rank=2", "quantise:bits=3"}) {
    SCOPED_TRACE(codec);
    LinkPair skipping(with_feedback(codec), kMatrix), plain_run(with_feedback(codec), kMatrix);
    for (int step = 0; step < 5; ++step) {
      const Floats x = normal(24 * 40, 20 + step);
      skipping.begin();
      skipping.send(normal(24 * 40, 90 + step));
      skipping.send(normal(24 * 40, 95 + step));
      skipping.steps = step;                  // tried again under the same number
      if (step % 2 == 0) skipping.abandon();  // else by begin() itself
      EXPECT_TRUE(same_bits(skipping.step(x), plain_run.step(x))) << step;
    }
  }
}

TEST(ErrorFeedback, AMessageThatIsNotFiniteChangesNoMemory) {
  for (const char* codec : {"sign", "quantise:bits=4", "top_k:keep=0.01", "low_rank:rank=2"})
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      SCOPED_TRACE(codec);
      LinkPair hit(with_feedback(codec), kMatrix), spared(with_feedback(codec), kMatrix);
      const Floats x = normal(24 * 40, 10);
      hit.step(x);
      spared.step(x);
      Floats broken = x;
      for (int i = 0; i < 30; ++i) broken[i] = bad;  // more than top_k keeps
      const Floats got = hit.step(broken);
      EXPECT_FALSE(is_finite(got.data(), got.size()));
      spared.begin();
      spared.commit();
      EXPECT_TRUE(same_bits(hit.step(x), spared.step(x)));
    }
}

TEST(ErrorFeedback, AResidualCanBeReadAndSetElementByElement) {
  const LinkSpec spec{"dp.gradient", parse_codec("quantise:bits=2"), ErrorFeedback{}};
  LinkPair one(spec, {Dtype::f32, {100}}), other(spec, {Dtype::f32, {100}});
  EXPECT_TRUE(one.sender.residual().empty());
  const Floats x = normal(100, 1);
  const Floats decoded = one.step(x);
  const auto residual = one.sender.residual();
  ASSERT_EQ(residual.size(), 100u);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(residual[i], x[i] - decoded[i]);
  other.step(normal(100, 9));
  other.sender.set_residual({100}, residual);
  EXPECT_TRUE(same_bits(one.step(x), other.step(x)));
  other.sender.set_residual({100}, {});
  EXPECT_TRUE(other.sender.residual().empty());
  other.sender.set_residual({2}, Floats{1, std::numeric_limits<float>::infinity()});
  EXPECT_TRUE(other.sender.residual().empty());
  EXPECT_THROW(other.sender.set_residual({2}, Floats{1}), std::logic_error);
}

TEST(ErrorFeedback, AResidualIsNotSetInAnOpenStep) {
  LinkPair link({"dp.gradient", parse_codec("sign"), ErrorFeedback{}}, {Dtype::f32, {4}});
  link.begin();
  link.send({1, 2, 3, 4});
  EXPECT_THROW(link.sender.set_residual({4}, {}), std::logic_error);
}

TEST(Link, FramesAreNumberedByMessageTurnAndSample) {
  const LinkSpec link{
      .name = "pp.activation.0-1", .memory = Delta{}, .numbering = {.turns = 4, .samples = 3}};
  const Keys keys{5, 6, 7};
  const MessageSpec message{.number = 7, .samples = keys, .turn = 2};
  EXPECT_EQ(sequence_of(link, 9, message), make_sequence(9, (7 * 4 + 2) * 3));
  const FrameHeader header = frame_header(link, 9, message, kMatrix, {2, Visit::difference, 8});
  EXPECT_EQ(header.sequence, make_sequence(9, (7 * 4 + 2) * 3 + 2));
  EXPECT_EQ(header.key, 7u);
  EXPECT_EQ(header.visits, 8u);
  EXPECT_EQ(sequence_of(link, 9, {.number = 7, .use = Use::evaluation}), make_sequence(9, 7));
  const Keys four{1, 2, 3, 4};
  for (const MessageSpec& bad :
       {MessageSpec{.number = -1}, MessageSpec{.turn = 4}, MessageSpec{.samples = four},
        MessageSpec{.number = 1 << 24, .use = Use::evaluation}, MessageSpec{.number = 1 << 23}})
    EXPECT_THROW(sequence_of(link, 0, bad), std::logic_error);
}

TEST(ErrorFeedback, ACheckpointContinuesBitForBit) {
  const TemporaryFolder folder;
  for (const char* codec : {"sign", "low_rank:rank=2"}) {
    LinkPair link(with_feedback(codec), kMatrix);
    for (int step = 0; step < 3; ++step) {
      link.begin();
      link.send(normal(24 * 40, step));
      link.send(normal(24 * 40, 10 + step), {.number = 1});
      link.commit();
    }
    link.sender.save(folder / "sender");
    LinkPair again(with_feedback(codec), kMatrix);
    again.sender.load(folder / "sender");
    again.steps = link.steps;
    for (int step = 3; step < 6; ++step) {
      const Floats x = normal(24 * 40, step);
      EXPECT_TRUE(same_bits(again.step(x), link.step(x)));
      EXPECT_EQ(again.last, link.last);
    }
  }
}

TEST(Link, EvaluationTouchesNothing) {
  const Floats x = normal(24 * 40, 11);
  LinkPair link(with_feedback("sign"), kMatrix), undisturbed(with_feedback("sign"), kMatrix);
  for (int step = 0; step < 3; ++step) {
    link.begin();
    for (const Use use : {Use::evaluation, Use::bypass})
      EXPECT_TRUE(same_bits(link.send(x, {.number = 1, .use = use}), x));
    undisturbed.begin();
    EXPECT_TRUE(same_bits(link.send(x), undisturbed.send(x)));
    link.commit();
    undisturbed.commit();
  }
}

// By the codec, of samples that nobody has met by that of first visits, from where training is; and
// training goes on as if it had not been.
TEST(Link, AnEncodedEvaluationIsThatOfTheCodecAndTouchesNothing) {
  const CodecSpec four = parse_codec("quantise:bits=4,block=32"), eight = parse_codec("quantise");
  Keys keys(kRows);
  std::iota(keys.begin(), keys.end(), 100U);
  const std::vector<std::pair<LinkSpec, CodecSpec>> cases = {
      {{"a", four, NoMemory{}}, four},
      {{"a", parse_codec("random_k:keep=0.2"), NoMemory{}, 7}, parse_codec("random_k:keep=0.2")},
      {with_feedback("sign"), parse_codec("sign")},
      {{"a", four, Delta{.first = eight}}, eight},
      {{"a", parse_codec("low_rank:rank=2"), NoMemory{}}, parse_codec("low_rank:rank=2")},
      {{"a", parse_codec("transform:bits=4"), NoMemory{}}, parse_codec("transform:bits=4")}};
  for (const auto& [spec, codec] : cases) {
    SCOPED_TRACE(to_text(spec.codec));
    LinkPair link(spec, kMatrix), undisturbed(spec, kMatrix);
    const MessageSpec evaluation{.number = 70000, .use = Use::encoded_evaluation};
    const Floats y = normal(kElements, 99);
    for (std::uint64_t step = 0; step < 4; ++step) {
      const Floats x = normal(kElements, step);
      EXPECT_TRUE(
          same_bits(link.step(x, {.samples = keys}), undisturbed.step(x, {.samples = keys})));
      const Floats once = link.send(y, evaluation);
      EXPECT_EQ(read_frame(link.last).header.codec, codec);
      EXPECT_FALSE(same_bits(once, y));
      EXPECT_TRUE(same_bits(link.send(y, evaluation), once)) << step;
      if (!std::holds_alternative<Quantise>(codec)) continue;
      Bytes payload(max_payload_bytes(codec, kMatrix));
      payload.resize(encode(codec, {kMatrix, y.data()}, {}, payload));
      Floats decoded(kElements);
      decode(codec, payload, {}, {kMatrix, decoded.data()});
      EXPECT_TRUE(same_bits(once, decoded));
    }
  }
}

// It begins where the last message of training ended: a cold start would keep less.
TEST(Link, AnEncodedEvaluationOfLowRankBeginsWhereTrainingIs) {
  LinkPair link({"a", parse_codec("low_rank:rank=2"), NoMemory{}}, kMatrix);
  const Floats x = normal(kElements, 5);
  const MessageSpec evaluation{.use = Use::encoded_evaluation};
  const double cold = relative_error(link.send(x, evaluation), x);
  for (int step = 0; step < 20; ++step) link.step(x);
  EXPECT_LT(relative_error(link.send(x, evaluation), x), 0.98 * cold);
}

}  // namespace
}  // namespace laconic
