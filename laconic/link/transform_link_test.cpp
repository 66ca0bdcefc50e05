// Both ends learn the same basis from what travels plain, and use it from the next step on.
#include "laconic/base/error.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/link/test_link.hpp"

namespace laconic {
namespace {

constexpr std::size_t kRowWidth = 16, kRowsOfSample = 24, kSamplesOfBatch = 2;
const TensorSpec kTransformBatch{Dtype::f32, {kSamplesOfBatch, kRowsOfSample, kRowWidth}};

LinkSpec transform_link(MemorySpec memory = NoMemory{}, std::int64_t refresh = 4) {
  return {"pp.activation.0-1", Transform{.bits = 5, .span = 8, .refresh = refresh}, memory, 3};
}

// Two strong directions of sixteen, which `turn` moves about.
Floats activations(std::uint64_t seed, std::size_t turn = 0) {
  const std::size_t rows = kSamplesOfBatch * kRowsOfSample;
  const Floats strong = normal(rows * 2, seed), weak = normal(rows * kRowWidth, seed + 1, 0.01);
  Floats x = weak;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t k = 0; k < 2; ++k)
      x[r * kRowWidth + (3 * k + turn) % kRowWidth] += strong[r * 2 + k];
  return x;
}

MessageSpec message_number(int number, const Keys& keys = {}) {
  return {.number = number, .samples = keys};
}

TEST(TransformLink, TheFirstStepIsPlainAndTeachesBothEnds) {
  LinkPair link(transform_link(), kTransformBatch);
  link.step(activations(1));
  const std::size_t plain = link.last_bytes;
  const Floats x = activations(2), arrived = link.step(x);
  EXPECT_LT(link.last_bytes, plain / 2);
  EXPECT_LT(relative_error(arrived, x), 0.06);
  EXPECT_GT(relative_error(arrived, x), 0) << "transformed";
  // Messages of a step that come in another order teach the same.
  link.begin();
  const Floats first = activations(5), second = activations(6);
  const Bytes a = link.pack(first, message_number(0)), b = link.pack(second, message_number(1));
  link.unpack(b, message_number(1));
  link.unpack(a, message_number(0));
  link.commit();
  for (int step = 0; step < 6; ++step)
    link.step(activations(10 + static_cast<std::uint64_t>(step)));
}

// The directions move: with the old ones much is lost until the next are learned.
TEST(TransformLink, ANewBasisIsLearnedEverySoManySteps) {
  LinkPair link(transform_link(NoMemory{}, 4), kTransformBatch);
  std::vector<double> errors;
  std::vector<std::size_t> bytes;
  for (std::uint64_t step = 0; step < 10; ++step) {
    const Floats x = activations(20 + 2 * step, step < 5 ? 0 : 5);
    errors.push_back(relative_error(link.step(x), x));
    bytes.push_back(link.last_bytes);
  }
  EXPECT_EQ(bytes[0], bytes[4]) << "plain again";
  EXPECT_EQ(bytes[0], bytes[8]);
  for (const std::size_t step : {1, 2, 3, 9}) {
    EXPECT_LT(bytes[step], bytes[0] / 2) << step;
    EXPECT_LT(errors[step], 0.06) << step;
  }
  EXPECT_GT(errors[5], 0.5) << "a basis of other rows";
}

TEST(TransformLink, WhatAnAbandonedStepTaughtIsForgotten) {
  LinkPair link(transform_link(), kTransformBatch);
  link.begin();
  link.send(activations(1));
  link.abandon();
  link.step(activations(2));
  const std::size_t plain = link.last_bytes;
  link.step(activations(3));
  EXPECT_LT(link.last_bytes, plain / 2) << "the step after that did teach";
}

TEST(TransformLink, FirstVisitsAndDifferencesHaveABasisEach) {
  LinkPair link(
      transform_link(Delta{.first = Transform{.bits = 6, .span = 8, .refresh = 1000}}, 1000),
      kTransformBatch);
  std::vector<std::size_t> bytes;
  for (std::uint64_t visit = 0; visit < 3; ++visit)
    for (std::uint64_t batch = 0; batch < 3; ++batch) {
      const Keys keys = {2 * batch, 2 * batch + 1};
      const Floats x = activations(100 + batch) + activations(300 + 10 * visit + batch, 7);
      const Floats arrived = link.step(x, message_number(0, keys));
      EXPECT_LT(relative_error(arrived, x), 0.1) << visit << " " << batch;
      bytes.push_back(link.last_bytes);
      for (const std::uint64_t key : keys)
        EXPECT_EQ(record(link.sender.references(), key), record(link.receiver.references(), key));
    }
  EXPECT_LT(bytes[1], 3 * bytes[0] / 4) << "first visits, of directions that the first step taught";
  EXPECT_GT(bytes[3], bytes[1]) << "the first differences are plain";
  EXPECT_LT(bytes[4], 3 * bytes[3] / 4);
}

// A sample is refused: it is sent again in plain bits, and both ends begin anew.
TEST(TransformLink, ARefusedSampleEndsTheBasisAtBothEnds) {
  LinkPair link(
      transform_link(Delta{.first = Transform{.bits = 6, .span = 8, .refresh = 1000}}, 1000),
      kTransformBatch);
  link.step(activations(1), message_number(0, {1, 2}));
  const std::size_t plain = link.last_bytes;
  link.step(activations(2), message_number(0, {3, 4}));
  ASSERT_LT(link.last_bytes, 2 * plain / 3);
  link.begin();
  const Floats x = activations(3);
  const Keys keys = {5, 6};
  Bytes damaged = link.pack(x, message_number(0, keys));
  damaged[damaged.size() - 10] ^= std::byte{1};
  Unpacked result;
  link.unpack(damaged, message_number(0, keys), &result);
  ASSERT_EQ(result.refused.size(), 1u);
  const Keys again = {result.refused[0].key};
  link.sender.forget(again);
  const TensorSpec one{Dtype::f32, {1, kRowsOfSample, kRowWidth}};
  MessageSpec turn = message_number(0, again);
  turn.turn = 1;
  const Bytes answer = link.sender.pack({one, x.data() + kRowsOfSample * kRowWidth}, turn);
  EXPECT_GT(answer.size(), plain / 3) << "plain";
  Floats out(kRowsOfSample * kRowWidth);
  EXPECT_TRUE(link.receiver.unpack(answer, {one, out.data()}, turn).refused.empty());
  link.commit();
  link.step(activations(4), message_number(0, {7, 8}));
  EXPECT_EQ(link.last_bytes, plain);
  link.step(activations(5), message_number(0, {9, 10}));
  EXPECT_LT(link.last_bytes, 2 * plain / 3);
}

TEST(TransformLink, GoesOnFromACheckpointBitForBit) {
  const TemporaryFolder folder;
  LinkPair whole(transform_link(ErrorFeedback{}), kTransformBatch),
      resumed(transform_link(ErrorFeedback{}), kTransformBatch);
  for (std::uint64_t step = 0; step < 2; ++step) whole.step(activations(step));
  whole.sender.save(folder / "sender");
  whole.receiver.save(folder / "receiver");
  resumed.sender.load(folder / "sender");
  resumed.receiver.load(folder / "receiver");
  resumed.steps = whole.steps;
  for (std::uint64_t step = 2; step < 7; ++step) {
    EXPECT_TRUE(same_bits(whole.step(activations(step)), resumed.step(activations(step)))) << step;
    EXPECT_EQ(whole.last, resumed.last) << step;
  }
  // An end that has lost its basis is noticed.
  LinkPair half(transform_link(), kTransformBatch);
  half.sender.load(folder / "sender");
  half.steps = 2;
  EXPECT_THROW(half.step(activations(1)), WireError);
}

TEST(TransformLink, TheBasisHasTheSameBitsOnAnyProcessor) {
  const auto learned = [](std::int64_t target) {
    return on_target(target, [] {
      const Floats x = activations(1);
      return make_basis(x.data(), kSamplesOfBatch * kRowsOfSample, kRowWidth, 5, 3);
    });
  };
  EXPECT_EQ(learned(-1), learned(0));
}

}  // namespace
}  // namespace laconic
