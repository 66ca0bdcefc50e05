#include "laconic/model/ops.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "laconic/base/target.hpp"
#include "laconic/base/test_target.hpp"
#include "laconic/model/test_ops.hpp"

namespace laconic {
namespace {

using test_ops::difference;
using test_ops::expect_same;
using test_ops::Operation;
using test_ops::random;
using test_ops::results;
using test_ops::some_dropout;

TEST(Ops, GeluEqualsAtensAtEverySize) {
  for (const std::int64_t size : {1, 3, 7, 16, 17, 63, 64, 65, 20000}) {
    SCOPED_TRACE(size);
    expect_same([](const auto& x) { return fused::gelu(x[0]); },
                [](const auto& x) { return composed::gelu(x[0]); }, {random({size}, "x", 3)});
  }
}

TEST(Ops, GeluIsDefinedAtTheEndsOfTheRange) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::tensor({-1e4, -100.0, 0.0, 100.0, 1e4}).to(dtype).requires_grad_(true);
    const at::Tensor y = fused::gelu(x);
    y.sum().backward();
    EXPECT_LT(difference(y.detach(), at::tensor({0.0, 0.0, 0.0, 100.0, 1e4})), 1e-30);
    EXPECT_LT(difference(x.grad(), at::tensor({0.0, 0.0, 0.5, 1.0, 1.0})), 1e-20);
    const at::Tensor nan = at::tensor({std::nan("")}).to(dtype);
    EXPECT_TRUE(std::isnan(fused::gelu(nan).item<double>()));
  }
}

TEST(Ops, ExactGeluEqualsAtensAtEverySize) {
  for (const std::int64_t size : {1, 3, 7, 16, 17, 63, 64, 65, 20000}) {
    SCOPED_TRACE(size);
    expect_same([](const auto& x) { return fused::exact_gelu(x[0]); },
                [](const auto& x) { return composed::exact_gelu(x[0]); }, {random({size}, "x", 3)});
  }
}

// Relative, not to the largest: what is left of x far below zero counts too.
TEST(Ops, ExactGeluIsRightDownToItsSmallestValues) {
  for_each_target([] {
    for (double x = -9; x <= 9; x += 1.0 / 64) {
      const double phi = std::erfc(-x / std::sqrt(2.0)) / 2;
      const double in_double = fused::exact_gelu(at::tensor({x}, at::kDouble)).item<double>();
      const double in_float = fused::exact_gelu(at::tensor({x}, at::kFloat)).item<double>();
      EXPECT_NEAR(in_double, x * phi, 1e-13 * std::abs(x * phi)) << x;
      EXPECT_NEAR(in_float, x * phi, 1e-5 * std::abs(x * phi)) << x;
    }
  });
}

TEST(Ops, ExactGeluIsDefinedAtTheEndsOfTheRange) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::tensor({-0x1p100, -1e4, -100.0, 0.0, 100.0, 1e4, 0x1p100})
                             .to(dtype)
                             .requires_grad_(true);
    const at::Tensor y = fused::exact_gelu(x);
    y.sum().backward();
    EXPECT_LT(difference(y.detach(), at::tensor({0.0, 0.0, 0.0, 0.0, 100.0, 1e4, 0x1p100})), 1e-30);
    EXPECT_LT(difference(x.grad(), at::tensor({0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0})), 1e-7);
    EXPECT_TRUE(std::isnan(fused::exact_gelu(at::tensor({std::nan("")}).to(dtype)).item<double>()));
  }
}

TEST(Ops, SwigluEqualsAtensAtEverySize) {
  for (const std::int64_t size : {1, 7, 17, 64, 65, 10000}) {
    SCOPED_TRACE(size);
    expect_same([](const auto& x) { return fused::swiglu(x[0], x[1]); },
                [](const auto& x) { return composed::swiglu(x[0], x[1]); },
                {random({2, size}, "gate", 3), random({2, size}, "up")});
  }
  const at::Tensor far = at::tensor({-1e4, 1e4}).to(at::kFloat).requires_grad_(true);
  const at::Tensor y = fused::swiglu(far, far);
  y.sum().backward();
  EXPECT_LT(difference(y.detach(), at::tensor({0.0, 1e8})), 1e-6);
  EXPECT_LT(difference(far.grad(), at::tensor({0.0, 2e4})), 1e-6);
}

TEST(Ops, RmsNormEqualsTheTextbookFormAtEverySize) {
  for (const std::int64_t rows : {1, 63, 64, 65, 200})
    for (const std::int64_t width : {2, 5, 16, 63, 384}) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << width);
      expect_same([](const auto& x) { return fused::rms_norm(x[0], x[1], 1e-5); },
                  [](const auto& x) { return composed::rms_norm(x[0], x[1], 1e-5); },
                  {random({rows, width}, "x", 3), random({width}, "weight")});
    }
  const at::Tensor zeros = at::zeros({2, 8}, at::kFloat);  // finite thanks to epsilon
  EXPECT_TRUE(fused::rms_norm(zeros, zeros[0] + 1, 1e-6).equal(zeros));
}

// Cosines and sines of [tokens, half] angles, as Llama has them.
std::pair<at::Tensor, at::Tensor> angles(std::int64_t tokens, std::int64_t half) {
  const at::Tensor speed =
      at::arange(half, at::kDouble).mul(-std::log(1e4) / static_cast<double>(half)).exp();
  const at::Tensor angle = at::arange(tokens, at::kDouble).unsqueeze(1) * speed;
  return {angle.cos(), angle.sin()};
}

TEST(Ops, RotateTurnsPairsByThePositionInTheSample) {
  for (const std::int64_t half : {1, 3, 16, 40}) {
    SCOPED_TRACE(half);
    const std::int64_t samples = 3, tokens = 7, heads = 2;
    const auto [cosines, sines] = angles(tokens + 2, half);  // more positions than are used
    const auto turn = [&, c = cosines, s = sines](const auto& rotate) {
      return [&, c, s](const auto& x) {
        return rotate(x[0], samples, heads, c.to(x[0].scalar_type()), s.to(x[0].scalar_type()));
      };
    };
    const at::Tensor x = random({samples * tokens, heads * 2 * half}, "x");
    expect_same(turn(fused::rotate), turn(composed::rotate), {x});
    const at::Tensor y = rotate(x, samples, heads, cosines, sines);
    for (const std::int64_t row : {0, 6, 7, 12, 20})  // plainly: a complex number times another
      for (const std::int64_t i : {std::int64_t{0}, half - 1}) {
        const double c = cosines[row % tokens][i].item<double>();
        const double s = sines[row % tokens][i].item<double>();
        const double a = x[row][2 * half + i].item<double>();  // of the second head
        const double b = x[row][3 * half + i].item<double>();
        EXPECT_NEAR(y[row][2 * half + i].item<double>(), a * c - b * s, 1e-14);
        EXPECT_NEAR(y[row][3 * half + i].item<double>(), b * c + a * s, 1e-14);
      }
    const at::Tensor wide = random({samples * tokens, 3 * x.size(1)}, "wide");
    const at::Tensor part = wide.narrow(1, x.size(1), x.size(1));  // rows apart
    EXPECT_TRUE(rotate(part, samples, heads, cosines, sines)
                    .equal(rotate(part.contiguous(), samples, heads, cosines, sines)));
  }
}

TEST(Ops, RotateRefusesTablesThatDoNotFit) {
  const at::Tensor x = random({6, 8}, "x");
  const auto refuses = [&](std::int64_t samples, std::int64_t heads, const at::Tensor& table) {
    EXPECT_ANY_THROW(rotate(x, samples, heads, table, table));
  };
  refuses(2, 2, random({2, 2}, "few tokens"));
  refuses(2, 2, random({3, 4}, "too wide"));
  refuses(2, 2, random({3, 2}, "float").to(at::kFloat));
  refuses(4, 2, random({3, 2}, "samples"));
  refuses(2, 8, random({3, 1}, "odd heads"));
  EXPECT_NO_THROW(rotate(x, 2, 2, random({3, 2}, "fits"), random({3, 2}, "fits")));
}

TEST(Ops, DropoutMaskIsTheSameFusedAndComposed) {
  for (const double probability : {0.0, 0.1, 0.5, 0.9}) {
    for (const std::int64_t samples : {1, 3}) {
      const Dropout dropout = some_dropout(probability, samples);
      expect_same([&](const auto& x) { return fused::dropout_add(x[0], x[1], dropout); },
                  [&](const auto& x) { return composed::dropout_add(x[0], x[1], dropout); },
                  {random({samples * 5, 13}, "residual"), random({samples * 5, 13}, "x")});
    }
  }
}

TEST(Ops, DropoutKeepsTheMean) {
  const at::Tensor x = random({64, 1024}, "x").fill_(1);
  const at::Tensor y = fused::dropout_add(x - x, x, some_dropout(0.3, 4));
  EXPECT_NEAR(y.mean().item<double>(), 1.0, 0.01);
  EXPECT_NEAR(y.eq(0).to(at::kDouble).mean().item<double>(), 0.3, 0.01);
}

TEST(Ops, ADropoutMaskBelongsToTheSampleNotToItsPlaceInTheBatch) {
  const at::Tensor x = random({4 * 7, 9}, "x");
  const Dropout all = some_dropout(0.5, 4);
  const at::Tensor whole = fused::dropout_add(x - x, x, all);
  const Dropout last{0.5, {all.sample_keys[3]}};
  const at::Tensor part = x.narrow(0, 21, 7);
  EXPECT_TRUE(whole.narrow(0, 21, 7).equal(fused::dropout_add(part - part, part, last)));
}

// As on a GPU, where the keys of places are derived from those of samples.
TEST(ComposedDropout, MasksOfParentsAreThoseOfTheirChildren) {
  const std::vector<Key> parents = dropout_keys(5, 2, {17, 18, 19});
  Pass pass{.dropout = 0.3, .sample_keys = parents};
  const at::Tensor x = random({3, 2, 5, 7}, "x");
  const at::Tensor expected = composed::drop(x, dropout_at(pass, 3, 9));
  std::vector<std::int64_t> words;
  for (const Key key : parents) words.insert(words.end(), {key.lo, key.hi});
  pass.device_keys = at::tensor(words).view({3, 2}).to(at::kInt);
  const Dropout derived = dropout_at(pass, 3, 9);
  ASSERT_TRUE(derived.parents.defined());
  EXPECT_TRUE(composed::drop(x, derived).equal(expected));
}

// What padding was cut off has the masks of the whole.
TEST(ComposedDropout, ACornerHasTheWordsOfTheWhole) {
  Dropout dropout = some_dropout(0.3, 3);
  const at::Tensor whole = random({3, 2, 8, 8}, "x");
  const at::Tensor expected = composed::drop(whole, dropout);
  dropout.tokens = 8;
  EXPECT_TRUE(composed::drop(whole, dropout).equal(expected));
  const auto corner = [](const at::Tensor& x) { return x.narrow(2, 0, 5).narrow(3, 0, 3); };
  EXPECT_TRUE(composed::drop(corner(whole), dropout).equal(corner(expected)));
}

// 1 / 0.9 in bfloat16 would be a sixth of a per cent too small, everywhere.
TEST(ComposedDropout, ScalesOfShortFloatsAreNotShort) {
  const Dropout dropout = some_dropout(0.1, 2);
  const at::Tensor x = random({2, 64}, "x").to(at::kBFloat16);
  EXPECT_EQ(composed::dropout_mask(x, dropout, 64).scalar_type(), at::kFloat);
  const at::Tensor exact = composed::drop(x.to(at::kFloat), dropout);
  const at::Tensor found = composed::drop(x, dropout);
  EXPECT_EQ(found.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(found.equal(exact.to(at::kBFloat16)));
}

TEST(ComposedCrossEntropy, IsNoShortFloat) {
  const at::Tensor x = random({5, 16}, "x").to(at::kBFloat16);
  const at::Tensor weight = random({7, 16}, "w", 0.3).to(at::kBFloat16);
  const at::Tensor targets = at::tensor(std::vector<std::int64_t>{0, 6, 3, 3, 1});
  const at::Tensor loss = composed::cross_entropy(x, weight, {}, targets);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), cross_entropy(x, weight, targets).item<double>(), 1e-6);
}

TEST(Ops, CrossEntropyEqualsAtens) {
  for (const std::int64_t vocabulary : {1, 5, 64, 257, 1000})
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      SCOPED_TRACE(testing::Message() << vocabulary << ", smoothing " << smoothing);
      const std::int64_t rows = 11;
      std::vector<std::int64_t> ids(rows);
      for (std::int64_t r = 0; r < rows; ++r) ids[static_cast<std::size_t>(r)] = r * 7 % vocabulary;
      const at::Tensor targets = at::tensor(ids);
      const auto by = [&](const auto& cross_entropy) {
        return [&](const auto& x) {
          const at::Tensor bias = x.size() > 2 ? x[2] : at::Tensor();
          return cross_entropy(x[0], x[1], bias, targets, nullptr, smoothing);
        };
      };
      const at::Tensor x = random({rows, 16}, "x"), weight = random({vocabulary, 16}, "weight");
      expect_same(by(fused::cross_entropy), by(composed::cross_entropy), {x, weight});
      expect_same(by(fused::cross_entropy), by(composed::cross_entropy),
                  {x, weight, random({vocabulary}, "bias")});
    }
}

TEST(Ops, LabelSmoothingSpreadsTheTargetOverTheVocabulary) {
  const at::Tensor x = random({4, 16}, "x"), weight = random({7, 16}, "weight");
  const at::Tensor bias = random({7}, "bias");
  const std::vector<std::int64_t> ids = {3, kNoTarget, 0, 6};
  const at::Tensor p = (x.mm(weight.t()) + bias).softmax(-1);
  double sum = 0;
  for (const std::int64_t r : {0, 2, 3})
    for (std::int64_t j = 0; j < 7; ++j)
      sum -= (0.2 / 7 + (j == ids[static_cast<std::size_t>(r)] ? 0.8 : 0)) *
             std::log(p[r][j].item<double>());
  for (const auto& by : {fused::cross_entropy, composed::cross_entropy})
    EXPECT_NEAR(by(x, weight, bias, at::tensor(ids), nullptr, 0.2).item<double>(), sum / 4, 1e-13);
  EXPECT_EQ(cross_entropy(x, weight, at::tensor(ids), nullptr, 0.2).item<double>(),
            cross_entropy(x, weight, at::zeros({7}, at::kDouble), at::tensor(ids), nullptr, 0.2)
                .item<double>());
}

TEST(Ops, CrossEntropyLeavesOutRowsWithoutATarget) {
  const std::int64_t none = kNoTarget;
  for (const std::vector<std::int64_t>& ids :
       {std::vector<std::int64_t>{3, none, 0, none, 6}, {none, none, none, none, none}}) {
    const at::Tensor targets = at::tensor(ids);
    const at::Tensor x = random({5, 16}, "x"), weight = random({7, 16}, "weight");
    expect_same([&](const auto& in) { return fused::cross_entropy(in[0], in[1], {}, targets); },
                [&](const auto& in) { return composed::cross_entropy(in[0], in[1], {}, targets); },
                {x, weight});
    double sum = 0;
    const at::Tensor logits = x.mm(weight.t());
    for (std::int64_t r = 0; r < 5; ++r)
      if (const std::int64_t target = ids[static_cast<std::size_t>(r)]; target != none)
        sum += (logits[r].logsumexp(0) - logits[r][target]).item<double>();
    EXPECT_NEAR(fused::cross_entropy(x, weight, {}, targets).item<double>(), sum / 5, 1e-5);
    at::Tensor leaf = x.detach().requires_grad_(true);
    fused::cross_entropy(leaf, weight, {}, targets).backward();
    for (std::int64_t r = 0; r < 5; ++r)
      EXPECT_EQ(leaf.grad()[r].abs().max().item<double>() == 0,
                ids[static_cast<std::size_t>(r)] == none);
  }
}

TEST(Ops, CrossEntropyOfHugeLogitsIsFiniteAndOfInfiniteOnesIsNot) {
  const at::Tensor weight = at::tensor({1.0, -1.0}).view({2, 1}).to(at::kFloat);
  const at::Tensor targets = at::tensor(std::vector<std::int64_t>{0});
  const auto loss = [&](double x) {
    return fused::cross_entropy(at::tensor({x}).view({1, 1}).to(at::kFloat), weight, {}, targets)
        .item<double>();
  };
  EXPECT_EQ(loss(1e4), 0);
  EXPECT_EQ(loss(-1e4), 2e4);
  EXPECT_TRUE(std::isnan(loss(std::numeric_limits<double>::infinity())));
  EXPECT_TRUE(std::isnan(loss(std::nan(""))));
}

TEST(Ops, OneNotANumberAnywhereReachesTheResult) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const std::int64_t at : {0, 5, 31, 69}) {
      at::Tensor weight = random({70, 8}, "weight").to(dtype);
      weight[at][3] = std::nan("");
      const at::Tensor targets = at::tensor(std::vector<std::int64_t>{1, 2});
      const at::Tensor x = random({2, 8}, "x").to(dtype);
      EXPECT_TRUE(std::isnan(fused::cross_entropy(x, weight, {}, targets).item<double>())) << at;
      at::Tensor qkv = random({70, 24}, "qkv").to(dtype);
      qkv[at][9] = std::nan("");  // in a key: every later query sees it
      const at::Tensor mixed = fused::causal_attention(qkv, 1, 1, {});
      EXPECT_TRUE(mixed[69].isnan().all().item<bool>()) << at;
      EXPECT_FALSE(mixed.narrow(0, 0, at).isnan().any().item<bool>()) << at;
    }
  }
}

// Every fused operation at sizes that several threads share unevenly.
std::vector<at::Tensor> all_results(at::ScalarType dtype) {
  const std::int64_t samples = 3, tokens = 97, heads = 6, width = 48, rows = samples * tokens;
  const auto [cosines, sines] = angles(tokens, 4);
  const at::Tensor c = cosines.to(dtype), s = sines.to(dtype);
  const at::Tensor lengths = at::tensor(std::vector<std::int64_t>{97, 13, 66});
  std::vector<std::int64_t> ids;
  for (std::int64_t r = 0; r < rows; ++r) ids.push_back(r % 5 == 0 ? kNoTarget : r % 31);
  const Dropout dropout = some_dropout(0.1, samples);
  const at::Tensor x = random({rows, width}, "x"), wide = random({400, 333}, "wide");
  const std::pair<Operation, std::vector<at::Tensor>> operations[] = {
      {[](const auto& in) { return fused::gelu(in[0]); }, {wide}},
      {[](const auto& in) { return fused::exact_gelu(in[0]); }, {wide}},
      {[](const auto& in) { return fused::swiglu(in[0], in[1]); }, {wide, wide.flip(0)}},
      {[](const auto& in) { return fused::rms_norm(in[0], in[1], 1e-6); }, {wide, wide[0]}},
      {[&](const auto& in) { return fused::rotate(in[0], samples, heads, c, s); }, {x}},
      {[&](const auto& in) { return fused::dropout_add(in[0], in[1], dropout); }, {x, x.flip(0)}},
      {[&](const auto& in) { return fused::causal_attention(in[0], samples, heads, dropout); },
       {random({rows, 3 * width}, "qkv")}},
      {[&](const auto& in) {
         return fused::attention(in[0], in[1], in[2], {samples, heads, 2, false}, lengths, dropout);
       },
       {x, random({rows, width / 3}, "k"), random({rows, width / 3}, "v")}}};
  std::vector<at::Tensor> all;
  for (const auto& [operation, inputs] : operations)
    for (const at::Tensor& result : results(operation, inputs, dtype)) all.push_back(result);
  // From the logits on: products of BLAS have bits of their own for every number of threads.
  const at::Tensor identity = at::eye(31, at::kDouble).to(dtype);
  const at::Tensor logits = random({rows, 31}, "logits").to(dtype).requires_grad_(true);
  const at::Tensor loss = fused::cross_entropy(logits, identity, {}, at::tensor(ids), nullptr, 0.1);
  loss.backward();
  all.insert(all.end(), {loss.detach(), logits.grad()});
  return all;
}

TEST(Ops, BitsDoNotDependOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    at::set_num_threads(1);
    const auto alone = all_results(dtype);
    for (const int several : {2, 3}) {
      at::set_num_threads(several);
      const auto shared = all_results(dtype);
      for (std::size_t i = 0; i < alone.size(); ++i)
        EXPECT_TRUE(shared[i].equal(alone[i])) << "result " << i << ", " << several << " threads";
    }
  }
  at::set_num_threads(threads);
}

// Slopes along a random direction, of what has its backward written by hand.
TEST(Ops, GradientsAreFiniteDifferences) {
  const auto [cosines, sines] = angles(5, 2);
  const at::Tensor c = cosines, s = sines;
  const at::Tensor lengths = at::tensor(std::vector<std::int64_t>{4, 5});
  const at::Tensor targets = at::tensor(std::vector<std::int64_t>{1, kNoTarget, 4});
  const at::Tensor x = random({10, 8}, "x"), k = random({10, 4}, "k"), v = random({10, 4}, "v");
  const Dropout dropout = some_dropout(0.2, 2);
  const std::pair<Operation, std::vector<at::Tensor>> operations[] = {
      {[](const auto& in) { return fused::exact_gelu(in[0]); }, {x}},
      {[](const auto& in) { return fused::swiglu(in[0], in[1]); }, {x, x.flip(0)}},
      {[](const auto& in) { return fused::rms_norm(in[0], in[1], 1e-2); }, {x, x[0]}},
      {[&](const auto& in) { return fused::rotate(in[0], 2, 2, c, s); }, {x}},
      {[&](const auto& in) {
         return fused::attention(in[0], in[1], in[2], {2, 2, 1, true}, lengths, dropout);
       },
       {x, k, v}},
      {[&](const auto& in) {
         return fused::cross_entropy(in[0], in[1], in[2], targets, nullptr, 0.1);
       },
       {random({3, 8}, "rows"), random({6, 8}, "weight"), random({6}, "bias")}}};
  for (const auto& [operation, inputs] : operations) {
    const auto exact = results(operation, inputs, at::kDouble);
    const at::Tensor noise = random(exact[0].sizes().vec(), "noise");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const at::Tensor direction = random(inputs[i].sizes().vec(), "direction");
      const auto value = [&](double step) {
        const at::NoGradGuard no_grad;
        auto moved = inputs;
        moved[i] = inputs[i] + direction * step;
        return (operation(moved) * noise).sum().item<double>();
      };
      const double slope = (value(1e-5) - value(-1e-5)) / 2e-5;
      EXPECT_NEAR((exact[i + 1] * direction).sum().item<double>(), slope,
                  1e-7 * std::max(1.0, std::abs(slope)))
          << exact[0].sizes() << ", input " << i;
    }
  }
}

}  // namespace
}  // namespace laconic
