#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "laconic/model/ops.hpp"
#include "laconic/model/test_ops.hpp"

namespace laconic {
namespace {

using test_ops::expect_same;
using test_ops::Operation;
using test_ops::random;
using test_ops::results;
using test_ops::some_dropout;

TEST(Attention, EqualsTheTextbookFormAcrossTileBorders) {
  for (const std::int64_t tokens : {1, 2, 5, 63, 64, 65, 130}) {
    for (const double probability : {0.0, 0.2}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, dropout " << probability);
      const std::int64_t samples = 2, heads = 3, width = 24;
      const Dropout dropout = some_dropout(probability, samples);
      expect_same(
          [&](const auto& x) { return fused::causal_attention(x[0], samples, heads, dropout); },
          [&](const auto& x) { return composed::causal_attention(x[0], samples, heads, dropout); },
          {random({samples * tokens, 3 * width}, "qkv")});
    }
  }
}

struct AttentionCase {
  const char* name;
  std::int64_t queries, keys, heads, key_heads;
  bool is_causal;
  std::vector<std::int64_t> lengths;  // of two samples, or none
};
const AttentionCase kAttentionCases[] = {
    {"one", 1, 1, 1, 1, false, {}},
    {"both ways", 65, 65, 3, 3, false, {}},
    {"both ways, padded", 130, 130, 2, 2, false, {70, 130}},
    {"padded to the last", 67, 67, 2, 2, false, {1, 64}},
    {"causal", 129, 129, 3, 3, true, {}},
    {"causal, padded", 150, 150, 2, 2, true, {64, 3}},
    {"grouped", 70, 70, 8, 2, true, {}},
    {"grouped, one for all, padded", 66, 66, 3, 1, false, {65, 7}},
    {"crossed", 5, 131, 2, 2, false, {}},
    {"crossed, grouped, padded", 140, 67, 4, 2, false, {66, 31}},
};
constexpr std::int64_t kHeadWidth = 6;

AttentionShape shape_of(const AttentionCase& c) {
  return {.samples = 2, .heads = c.heads, .key_heads = c.key_heads, .is_causal = c.is_causal};
}
at::Tensor lengths_of(const AttentionCase& c) {
  return c.lengths.empty() ? at::Tensor() : at::tensor(c.lengths);
}
std::vector<at::Tensor> inputs_of(const AttentionCase& c) {
  return {random({2 * c.queries, c.heads * kHeadWidth}, "q", 2),
          random({2 * c.keys, c.key_heads * kHeadWidth}, "k", 2),
          random({2 * c.keys, c.key_heads * kHeadWidth}, "v")};
}

TEST(Attention, EqualsTheTextbookFormWithPaddingGroupsAndOtherKeys) {
  for (const AttentionCase& c : kAttentionCases)
    for (const double probability : {0.0, 0.2}) {
      SCOPED_TRACE(testing::Message() << c.name << ", dropout " << probability);
      const Dropout dropout = some_dropout(probability, 2);
      const auto by = [&](const auto& attention) {
        return [&](const auto& x) {
          return attention(x[0], x[1], x[2], shape_of(c), lengths_of(c), dropout);
        };
      };
      expect_same(by(fused::attention), by(composed::attention), inputs_of(c));
    }
}

// One number at a time, from the definition; the dropout mask word by word.
TEST(Attention, IsWhatItsDefinitionSays) {
  for (const AttentionCase& c : kAttentionCases) {
    SCOPED_TRACE(c.name);
    const auto in = inputs_of(c);
    const Dropout dropout = some_dropout(0.3, 2);
    const at::Tensor out = attention(in[0], in[1], in[2], shape_of(c), lengths_of(c), dropout);
    ASSERT_EQ(out.sizes(), in[0].sizes());
    for (const std::int64_t sample : {0, 1})
      for (const std::int64_t head : {std::int64_t{0}, c.heads - 1})
        for (const std::int64_t query : {std::int64_t{0}, c.queries / 2, c.queries - 1}) {
          const std::int64_t key_head = head * c.key_heads / c.heads;
          const at::Tensor q = in[0][sample * c.queries + query];
          std::int64_t seen =
              c.lengths.empty() ? c.keys : c.lengths[static_cast<std::size_t>(sample)];
          if (c.is_causal) seen = std::min(seen, query + 1);
          const auto part = [&](const at::Tensor& row, std::int64_t h, std::int64_t i) {
            return row[h * kHeadWidth + i].item<double>();
          };
          std::vector<double> e;
          double sum = 0;
          for (std::int64_t key = 0; key < seen; ++key) {
            double score = 0;
            for (std::int64_t i = 0; i < kHeadWidth; ++i)
              score += part(q, head, i) * part(in[1][sample * c.keys + key], key_head, i);
            e.push_back(std::exp(score / std::sqrt(static_cast<double>(kHeadWidth))));
            sum += e.back();
          }
          double mixed = 0;
          for (std::int64_t key = 0; key < seen; ++key) {
            const auto word = static_cast<std::uint64_t>((head * c.queries + query) * c.keys + key);
            const Key of_sample = dropout.sample_keys[static_cast<std::size_t>(sample)];
            if (word_at(of_sample, word) >= std::ldexp(0.3, 32))
              mixed += e[static_cast<std::size_t>(key)] / sum / 0.7 *
                       part(in[2][sample * c.keys + key], key_head, 1);
          }
          EXPECT_NEAR(part(out[sample * c.queries + query], head, 1), mixed, 1e-12);
        }
  }
}

TEST(Attention, OfPartsOfOneMatrixHasTheBitsOfAttentionOfThree) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const Dropout dropout = some_dropout(0.1, 2);
    const at::Tensor noise = random({260, 32}, "noise").to(dtype);
    const at::Tensor one = random({260, 96}, "qkv").to(dtype).requires_grad_(true);
    const at::Tensor expected = fused::causal_attention(one, 2, 4, dropout);
    expected.backward(noise);
    const at::Tensor two = one.detach().clone().requires_grad_(true);
    const auto parts = two.chunk(3, 1);
    const at::Tensor y =
        fused::attention(parts[0], parts[1], parts[2], {2, 4, 4, true}, {}, dropout);
    y.backward(noise);
    EXPECT_TRUE(y.equal(expected));
    EXPECT_TRUE(two.grad().equal(one.grad()));
  }
}

TEST(Attention, PaddingChangesNothingWhateverItIs) {
  for (const AttentionCase& c : kAttentionCases) {
    if (c.lengths.empty()) continue;
    for (const auto& attention : {fused::attention, composed::attention}) {
      SCOPED_TRACE(c.name);
      const Operation operation = [&](const auto& x) {
        return attention(x[0], x[1], x[2], shape_of(c), lengths_of(c), some_dropout(0.1, 2));
      };
      auto inputs = inputs_of(c);
      const auto before = results(operation, inputs, at::kDouble);
      for (const double other : {7.5, std::nan("")}) {
        for (std::int64_t s = 0; s < 2; ++s) {
          const std::int64_t length = c.lengths[static_cast<std::size_t>(s)];
          for (const int i : {1, 2})
            inputs[static_cast<std::size_t>(i)]
                .narrow(0, s * c.keys + length, c.keys - length)
                .fill_(other);
        }
        const auto after = results(operation, inputs, at::kDouble);
        for (std::size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(after[i].equal(before[i])) << i;
      }
      for (std::int64_t s = 0; s < 2; ++s) {  // nor does it get a gradient
        const std::int64_t length = c.lengths[static_cast<std::size_t>(s)];
        for (const std::size_t i : {2, 3}) {
          const at::Tensor gradient = before[i].narrow(0, s * c.keys, c.keys);
          EXPECT_TRUE(gradient.narrow(0, length, c.keys - length).eq(0).all().item<bool>());
          EXPECT_EQ(gradient.narrow(0, 0, length).ne(0).any().item<bool>(),
                    i == 3 || length > 1);  // a single score has no gradient
        }
      }
    }
  }
}

// Rows beyond the first of each sample left out.
at::Tensor first_rows(const at::Tensor& x, std::int64_t rows) {
  return x.view({2, -1, x.size(1)}).narrow(1, 0, rows).reshape({2 * rows, x.size(1)});
}

TEST(Attention, CuttingPaddingOffLeavesTheMasksOfDropout) {
  const AttentionCase whole{"whole", 70, 70, 4, 2, false, {40, 13}};
  AttentionCase cut = whole;
  cut.queries = cut.keys = 40;
  for (const auto& attention : {fused::attention, composed::attention}) {
    Dropout dropout = some_dropout(0.2, 2);
    const auto run = [&](const AttentionCase& c, std::vector<at::Tensor> x) {
      for (at::Tensor& input : x) input = input.detach().clone().requires_grad_(true);
      at::Tensor y = attention(x[0], x[1], x[2], shape_of(c), lengths_of(c), dropout);
      y = first_rows(y, 40);
      y.backward(random(y.sizes().vec(), "noise"));
      return std::vector<at::Tensor>{y, x[0].grad(), x[1].grad(), x[2].grad()};
    };
    const auto expected = run(whole, inputs_of(whole));
    std::vector<at::Tensor> shorter;
    for (const at::Tensor& input : inputs_of(whole)) shorter.push_back(first_rows(input, 40));
    const auto other = run(cut, shorter);
    EXPECT_FALSE(other[0].allclose(expected[0])) << "words have other numbers";
    dropout.tokens = 70;
    const auto same = run(cut, shorter);
    for (std::size_t i = 0; i < same.size(); ++i)
      EXPECT_TRUE(same[i].allclose(first_rows(expected[i], 40), 0, 1e-12)) << i;
  }
}

TEST(Attention, RefusesShapesThatDoNotFit) {
  const at::Tensor q = random({6, 8}, "q"), k = random({6, 4}, "k");
  const at::Tensor ok = at::tensor(std::vector<std::int64_t>{3, 9});
  EXPECT_NO_THROW(attention(q, k, k, {2, 4, 2, true}, ok, {}));  // beyond the keys: all of them
  EXPECT_TRUE(attention(q, k, k, {2, 4, 2, true}, ok, {})
                  .equal(attention(q, k, k, {2, 4, 2, true}, {}, {})));
  EXPECT_ANY_THROW(attention(q, k, k, {2, 4, 3, false}, {}, {}));
  EXPECT_ANY_THROW(attention(q, k, k, {2, 4, 4, false}, {}, {}));
  EXPECT_ANY_THROW(attention(q, k, k, {4, 4, 2, false}, {}, {}));
  EXPECT_ANY_THROW(attention(q, k, q, {2, 4, 2, false}, {}, {}));
  EXPECT_ANY_THROW(attention(q.narrow(0, 0, 4), k, k, {2, 4, 2, true}, {}, {}));
  EXPECT_NO_THROW(attention(q.narrow(0, 0, 4), k, k, {2, 4, 2, false}, {}, {}));
  EXPECT_ANY_THROW(attention(q, k, k, {2, 4, 2, false}, ok.narrow(0, 0, 1), {}));
  EXPECT_ANY_THROW(attention(q, k, k, {2, 4, 2, false}, ok - 3, {}));
}

}  // namespace
}  // namespace laconic
