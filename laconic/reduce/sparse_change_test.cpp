// L5 of the specification of twenty megabits: the coder of SparseLoCo.
#include "laconic/reduce/sparse_change.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"

namespace laconic {
namespace {

TensorSpec spec(std::vector<std::int64_t> shape) {
  return {.dtype = Dtype::f32, .shape = std::move(shape)};
}

std::vector<float> drawn(const TensorSpec& tensor, std::uint64_t seed) {
  std::vector<float> values(elements_of(tensor));
  fill_normal(key_of(seed), 0, 0, 1, std::span(values));
  return values;
}

struct Sent {
  std::vector<float> dense;
  std::vector<SparseElement> elements;
  std::vector<float> left;
  Bytes payload;
};

Sent send(const TensorSpec& tensor, const std::vector<float>& values) {
  Sent sent{
      .dense = std::vector<float>(values.size()), .elements = {}, .left = values, .payload = {}};
  encode_sparse(tensor, sent.left, sent.payload);
  EXPECT_EQ(sent.payload.size(), sparse_bytes(tensor));
  ByteView view = sent.payload;
  sent.elements = decode_sparse(tensor, view);
  EXPECT_TRUE(view.empty());
  for (const SparseElement& e : sent.elements)
    sent.dense[static_cast<std::size_t>(e.place)] = e.value;
  return sent;
}

// Chunks at the edges are cut, and shorter than what is kept.
TEST(SparseChange, WhatIsLeftIsWhatWasNotSent) {
  for (const auto& shape : {std::vector<std::int64_t>{64, 64},
                            {130, 70},
                            {3, 5},
                            {4097},
                            {7},
                            {1, 200},
                            {0},
                            {5, 3, 70}}) {
    const TensorSpec tensor = spec(shape);
    const std::vector<float> values = drawn(tensor, 3);
    const Sent sent = send(tensor, values);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(sent.left[i], values[i] - sent.dense[i]) << i;
  }
}

TEST(SparseChange, TheLargestOfEveryChunkAreKeptAndOfEqualsTheFirst) {
  const TensorSpec tensor = spec({128, 64});  // two chunks, one above the other
  std::vector<float> values(elements_of(tensor), 1.0F);
  values[4000] = -9;
  const Sent sent = send(tensor, values);
  ASSERT_EQ(sent.elements.size(), 128U);
  for (std::int64_t i = 0; i < 63; ++i)
    EXPECT_EQ(sent.elements[static_cast<std::size_t>(i)].place, i);
  EXPECT_EQ(sent.elements[63].place, 4000);
  for (std::int64_t i = 0; i < 64; ++i)
    EXPECT_EQ(sent.elements[static_cast<std::size_t>(64 + i)].place, 4096 + i);
  for (const SparseElement& e : sent.elements) EXPECT_EQ(e.value, e.place == 4000 ? -9 : 1);
  std::ranges::fill(values, 0.0F);
  for (const SparseElement& e : send(tensor, values).elements) EXPECT_EQ(e.value, 0);
}

// Of 1, 2, 3 and 10 the mean is 4, and a bin is 1.5 * sqrt(12.5) = 5.3 wide: 1, 2 and 3 are in the
// second, 10 is in the last.
TEST(SparseChange, BytesAreThoseOfTheFormat) {
  const Sent sent = send(spec({4}), {1, 2, 3, 10});
  const std::vector<int> expected = {0,    0,    0,    0,    0,    0,    0,         0x40,
                                     0,    0,    0,    0,    0,    0,    0x20,      0x41,
                                     0x00, 0x10, 0x00, 0x02, 0x30, 0x00, 0b11010101};
  std::vector<int> found;
  for (const std::byte b : sent.payload) found.push_back(std::to_integer<int>(b));
  EXPECT_EQ(found, expected);
  // Twelve bits of an index are used: the last 64 of a long vector.
  std::vector<float> values(4096);
  for (std::size_t i = 0; i < 64; ++i) values[4096 - 64 + i] = 5;
  const Sent high = send(spec({4096}), values);
  EXPECT_EQ(high.elements.back().place, 4095);
  EXPECT_EQ(std::to_integer<int>(high.payload[16]), 0xC0);
  EXPECT_EQ(std::to_integer<int>(high.payload[17]), 0x1F);
  EXPECT_EQ(std::to_integer<int>(high.payload[18]), 0xFC);
}

TEST(SparseChange, BothAggregates) {
  const std::vector<std::vector<SparseElement>> ranks = {
      {{0, 3}, {1, 4}}, {{1, 3}, {2, 4}}, {{3, 10}}};
  std::vector<float> mean(5, 7), choosers(5, 7);
  aggregate_sparse(ranks, SparseAggregate::mean, mean);
  aggregate_sparse(ranks, SparseAggregate::choosers, choosers);
  const std::vector<float> means = {1, 7.0F / 3, 4.0F / 3, 10.0F / 3, 0};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(mean[i], means[i], 1e-6) << i;
  // Norms 5, 5 and 10: the third is halved.
  EXPECT_EQ(choosers, (std::vector<float>{3, 3.5, 4, 5, 0}));
}

TEST(SparseChange, RefusesWhatEncodeCannotHaveMade) {
  const TensorSpec tensor = spec({3, 5});
  Bytes payload = send(tensor, drawn(tensor, 1)).payload;
  ByteView shorter = ByteView(payload).first(payload.size() - 1);
  EXPECT_THROW(decode_sparse(tensor, shorter), WireError);
  payload[16] = std::byte{63};  // column 63 of a chunk of five
  ByteView view = payload;
  EXPECT_THROW(decode_sparse(tensor, view), WireError);
}

}  // namespace
}  // namespace laconic
