// Every operation on a GPU against itself on the CPU.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "laconic/base/target.hpp"
#include "laconic/model/cuda.hpp"
#include "laconic/model/linear.hpp"
#include "laconic/model/test_ops.hpp"
#include "laconic/tensor/test_gpu.hpp"

namespace laconic {
namespace {

using test_ops::difference;
using test_ops::Operation;
using test_ops::random;
using test_ops::some_dropout;

class GpuOps : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    at::globalContext().setDeterministicAlgorithms(true, true);
    cuda::prepare(true);
  }
  void TearDown() override {
    if (!IsSkipped()) at::globalContext().setDeterministicAlgorithms(false, false);
  }
};

// As runs with run.deterministic = false are: attention may take any kernel, cuDNN's too.
class AnyGpuOps : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU here: libtorch sees none";
    at::globalContext().setDeterministicAlgorithms(false, false);
    cuda::prepare(false);
  }
  void TearDown() override {
    if (at::hasCUDA()) cuda::prepare(true);
  }
};

// Value and gradients, as test_ops::results(), on a device.
std::vector<at::Tensor> results_on(at::Device device, const Operation& operation,
                                   const std::vector<at::Tensor>& inputs, at::ScalarType dtype) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : inputs)
    leaves.push_back(x.to(dtype).to(device).detach().clone().requires_grad_(true));
  const at::Tensor y = operation(leaves);
  y.backward(random(y.sizes().vec(), "noise").to(y.options().requires_grad(false)));
  std::vector<at::Tensor> all = {y.detach().to(at::kCPU)};
  for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad().to(at::kCPU));
  return all;
}

// Against double on the CPU. Inputs are what bfloat16 can hold, so that only arithmetic differs.
void expect_like_cpu(const Operation& operation, std::vector<at::Tensor> inputs,
                     double short_limit = 0.02) {
  for (at::Tensor& x : inputs) x = x.to(at::kBFloat16).to(at::kDouble);
  const auto exact = results_on(at::kCPU, operation, inputs, at::kDouble);
  const bool is_deterministic = at::globalContext().deterministicAlgorithms();
  const auto limits = {
      std::pair{at::kDouble, 1e-10}, {at::kFloat, 1e-5}, {at::kBFloat16, short_limit}};
  for (const auto& [dtype, limit] : limits) {
    const auto found = results_on(at::kCUDA, operation, inputs, dtype);
    const auto again = results_on(at::kCUDA, operation, inputs, dtype);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      EXPECT_LT(difference(found[i], exact[i]), limit) << toString(dtype) << ", result " << i;
      EXPECT_TRUE(!is_deterministic || found[i].equal(again[i]))
          << toString(dtype) << ", result " << i << " twice";
    }
  }
}

TEST_F(GpuOps, Activations) {
  for (const std::vector<std::int64_t>& sizes :
       {std::vector<std::int64_t>{8}, {3, 16}, {700, 264}, {33, 3072}}) {
    expect_like_cpu([](const auto& x) { return gelu(x[0]); }, {random(sizes, "x", 2)});
    expect_like_cpu([](const auto& x) { return exact_gelu(x[0]); }, {random(sizes, "x", 2)});
    expect_like_cpu([](const auto& x) { return swiglu(x[0], x[1]); },
                    {random(sizes, "x", 2), random(sizes, "y")});
  }
}

TEST_F(GpuOps, Norms) {
  // Blocks share 48 KiB and no more unless they ask, which is about 6144 columns of two sums;
  // beyond 8192 no kernel takes them.
  for (const std::int64_t width :
       {8, 64, 256, 264, 768, 1024, 1032, 2048, 2056, 4096, 6136, 6144, 6152, 8192, 8200, 12288}) {
    SCOPED_TRACE(width);
    for (const std::int64_t rows : {1, 5, 700, 3000}) {
      if (rows > 700 && width > 1024) continue;
      const at::Tensor x = random({rows, width}, "x"), y = random({rows, width}, "y");
      const at::Tensor w = random({width}, "w"), b = random({width}, "b");
      expect_like_cpu([](const auto& t) { return layer_norm(t[0], t[1], t[2], 1e-5); }, {x, w, b});
      expect_like_cpu([](const auto& t) { return rms_norm(t[0], t[1], 1e-5); }, {x, w});
      expect_like_cpu(
          [](const auto& t) {
            const Forked f = fork_layer_norm(t[0], t[1], t[2], 1e-5);
            return f.beside.mul(2).add(f.normed);
          },
          {x, w, b});
      expect_like_cpu(
          [](const auto& t) {
            const Forked f = add_layer_norm(t[0], t[1], {}, t[2], t[3], 1e-5);
            return f.beside.mul(2).add(f.normed);
          },
          {x, y, w, b});
      expect_like_cpu(
          [](const auto& t) {
            const Forked f = add_rms_norm(t[0], t[1], {}, t[2], 1e-5);
            return f.beside.mul(2).add(f.normed);
          },
          {x, y, w});
    }
  }
}

// As on a tensor grid, which gathers them.
TEST_F(GpuOps, NormsWhoseWeightsAreNoLeaves) {
  const at::Tensor x = random({33, 64}, "x"), w = random({64}, "w"), b = random({64}, "b");
  expect_like_cpu([](const auto& t) { return layer_norm(t[0], t[1].mul(2), t[2].mul(2), 1e-5); },
                  {x, w, b});
  expect_like_cpu([](const auto& t) { return rms_norm(t[0], t[1].mul(2), 1e-5); }, {x, w});
}

TEST_F(GpuOps, LinearMaps) {
  const at::Tensor x = random({96, 64}, "x"), w = random({64, 48}, "w", 0.2),
                   wt = random({48, 64}, "wt", 0.2), b = random({48}, "b");
  expect_like_cpu([](const auto& t) { return linear(t[0], t[1], t[2]); }, {x, w, b});
  expect_like_cpu([](const auto& t) { return transposed_linear(t[0], t[1], t[2]); }, {x, wt, b});
  expect_like_cpu([](const auto& t) { return transposed_linear(t[0], t[1], {}); }, {x, wt});
  expect_like_cpu([](const auto& t) { return gelu_linear(t[0], t[1], t[2]); }, {x, w, b}, 0.03);
  expect_like_cpu([](const auto& t) { return exact_gelu_linear(t[0], t[1], t[2]); }, {x, wt, b},
                  0.03);
  expect_like_cpu([](const auto& t) { return transposed_linear(t[0], t[1], t[2]); },
                  {x, random({3, 64}, "few", 0.2), random({3}, "c")});
}

// What one product leaves, another adds to, in float32 whatever the factors are.
TEST_F(GpuOps, ProductsAddUp) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(toString(dtype));
    const auto on_gpu = [&](const at::Tensor& x) { return x.to(dtype).to(at::kCUDA); };
    for (const std::int64_t columns : {48, 3}) {
      at::Tensor sum, rows, exact, exact_rows;
      const void* place = nullptr;
      for (const char* name : {"first", "second", "third"}) {
        const at::Tensor x = random({96, 64}, name).to(at::kBFloat16).to(at::kDouble);
        const at::Tensor y = random({96, columns}, name).to(at::kBFloat16).to(at::kDouble);
        cuda::add_product(on_gpu(x), on_gpu(y), sum);
        cuda::add_rows(on_gpu(y), rows);
        exact = exact.defined() ? exact.add(x.t().mm(y)) : x.t().mm(y);
        exact_rows = exact_rows.defined() ? exact_rows.add(y.sum(0)) : y.sum(0);
        if (place != nullptr) {
          EXPECT_EQ(sum.data_ptr(), place);
        }
        place = sum.data_ptr();
        EXPECT_EQ(sum.scalar_type(), at::kFloat);
        EXPECT_LT(difference(sum.to(at::kCPU), exact), 1e-5) << name;
        EXPECT_LT(difference(rows.to(at::kCPU), exact_rows), 1e-5) << name;
      }
    }
  }
}

TEST_F(GpuOps, DropoutDropsTheSame) {
  for (const std::int64_t width : {8, 40, 768, 7, 100}) {
    SCOPED_TRACE(width);
    const Dropout dropout = some_dropout(0.3, 4);
    expect_like_cpu([&](const auto& t) { return dropout_add(t[0], t[1], dropout); },
                    {random({20, width}, "x"), random({20, width}, "y")});
  }
}

// Of matrices of any length, and of corners, by keys from the host or derived on the GPU.
TEST_F(GpuOps, DropoutOfMatrices) {
  const Pass pass{.dropout = 0.1, .sample_keys = dropout_keys(5, 2, {17, 18, 19})};
  for (const std::int64_t columns : {3, 8, 24, 100})
    for (const std::int64_t tokens : {0, 100, 104, 128})
      for (const bool are_derived : {false, true}) {
        SCOPED_TRACE(testing::Message() << columns << " of " << tokens);
        Pass on_gpu = pass;
        on_gpu.dropout_tokens = tokens;
        if (are_derived) on_gpu.device_keys = keys_on(at::kCUDA, pass.sample_keys);
        Pass on_cpu = on_gpu;
        on_cpu.device_keys.reset();
        expect_like_cpu(
            [&](const auto& t) {
              return drop(t[0], dropout_at(t[0].is_cuda() ? on_gpu : on_cpu, 3, 1));
            },
            {random({3, 2, 9, columns}, "p")});
      }
}

// Masks are zeros and 1 / (1 - p) itself.
TEST_F(GpuOps, DropoutScalesByWhatIsNotRounded) {
  // Times 1 / 0.9 rounded to bfloat16 it would become 247 / 128.
  const double value = 223.0 / 128, expected = 248.0 / 128;
  const at::Tensor x = at::full({2, 4096}, value, at::kBFloat16);
  const Dropout dropout = some_dropout(0.1, 2);
  const at::Tensor dropped = drop(x.to(at::kCUDA), dropout).to(at::kCPU, at::kDouble);
  EXPECT_TRUE(dropped.eq(0).logical_or(dropped.eq(expected)).all().item<bool>());
}

// bfloat16 of widths that no kernel takes: statistics and losses are float32 all the same.
TEST_F(GpuOps, ShortFloatsOfAnyWidth) {
  const at::Tensor x = random({40, 60}, "x"), y = random({40, 60}, "y"), w = random({60}, "w"),
                   b = random({60}, "b");
  expect_like_cpu([](const auto& t) { return gelu(t[0]); }, {x});
  expect_like_cpu([](const auto& t) { return swiglu(t[0], t[1]); }, {x, y});
  expect_like_cpu([](const auto& t) { return rms_norm(t[0], t[1], 1e-5); }, {x, w});
  expect_like_cpu([](const auto& t) { return layer_norm(t[0], t[1], t[2], 1e-5); }, {x, w, b});
  const auto rounded = [](const at::Tensor& t) { return t.to(at::kBFloat16).to(at::kDouble); };
  const at::Tensor exact = rms_norm(rounded(x), rounded(w), 1e-5);
  const at::Tensor found =
      rms_norm(x.to(at::kCUDA, at::kBFloat16), w.to(at::kCUDA, at::kBFloat16), 1e-5)
          .to(at::kCPU, at::kDouble);
  // Rounded once, at the end.
  EXPECT_LT(found.div(exact).sub(1).abs().max().item<double>(), 1.01 / 256);
  const at::Tensor table = random({101, 60}, "table", 0.3);
  const at::Tensor targets = at::randint(101, {40}, at::kLong);
  expect_like_cpu([](const auto& t) { return transposed_linear(t[0], t[1], {}); }, {x, table});
  const auto loss = [&](const auto& t) {
    return cross_entropy(t[0], t[1], {}, targets.to(t[0].device()));
  };
  expect_like_cpu(loss, {x, table}, 0.04);
  const at::Tensor short_loss = loss(
      std::vector<at::Tensor>{x.to(at::kCUDA, at::kBFloat16), table.to(at::kCUDA, at::kBFloat16)});
  EXPECT_EQ(short_loss.scalar_type(), at::kFloat);
}

TEST_F(GpuOps, Rotation) {
  for (const std::int64_t half : {16, 4}) {  // vectors of eight do not fit into the second
    SCOPED_TRACE(half);
    const at::Tensor c = random({12, half}, "c").to(at::kBFloat16).to(at::kDouble),
                     s = random({12, half}, "s").to(at::kBFloat16).to(at::kDouble);
    expect_like_cpu(
        [&](const auto& t) {
          return rotate(t[0], 3, 64 / half, c.to(t[0].options().requires_grad(false)),
                        s.to(t[0].options().requires_grad(false)));
        },
        {random({30, 128}, "x")});
  }
}

TEST_F(GpuOps, Embedding) {
  for (const std::int64_t rows : {2, 64, 65, 500}) {
    for (const std::int64_t count : {1, 31, 32, 33, 1000}) {
      const at::Tensor ids = at::randint(std::min<std::int64_t>(rows, 40), {count}, at::kLong);
      expect_like_cpu([&](const auto& t) { return table_rows(t[0], ids.to(t[0].device())); },
                      {random({rows, 72}, "table")});
    }
  }
}

TEST_F(GpuOps, Attention) {
  for (const std::int64_t tokens : {16, 64, 200}) {
    SCOPED_TRACE(tokens);
    expect_like_cpu([](const auto& t) { return causal_attention(t[0], 2, 4, {}); },
                    {random({2 * tokens, 3 * 4 * 64}, "x")}, 0.04);
    const auto with = [&](std::int64_t key_heads, bool is_causal, const at::Tensor& lengths) {
      expect_like_cpu(
          [=](const auto& t) {
            return attention(
                t[0], t[1], t[2],
                {.samples = 2, .heads = 4, .key_heads = key_heads, .is_causal = is_causal},
                lengths.defined() ? lengths.to(t[0].device()) : lengths, {});
          },
          {random({2 * tokens, 4 * 64}, "q"), random({2 * tokens, key_heads * 64}, "k"),
           random({2 * tokens, key_heads * 64}, "v")},
          0.04);
    };
    with(4, true, {});
    with(2, true, {});
    with(4, false, {});
    with(4, false, at::tensor({tokens, tokens / 2}));
  }
  const Dropout dropout = some_dropout(0.2, 2);
  for (const std::int64_t tokens : {24, 100, 101})
    expect_like_cpu([&](const auto& t) { return causal_attention(t[0], 2, 4, dropout); },
                    {random({2 * tokens, 3 * 4 * 8}, "x")}, 0.05);
}

// Flash kernels want heads of multiples of 8, matrices of all heads are.
TEST_F(GpuOps, AttentionOfAnyHeadWidth) {
  for (const std::int64_t width : {4, 12, 20, 36}) {
    SCOPED_TRACE(width);
    expect_like_cpu([](const auto& t) { return causal_attention(t[0], 2, 4, {}); },
                    {random({2 * 48, 3 * 4 * width}, "x")}, 0.04);
    expect_like_cpu(
        [](const auto& t) {
          return attention(t[0], t[1], t[2], {.samples = 2, .heads = 4, .key_heads = 2}, {}, {});
        },
        {random({2 * 48, 4 * width}, "q"), random({2 * 48, 2 * width}, "k"),
         random({2 * 48, 2 * width}, "v")},
        0.04);
  }
}

TEST_F(AnyGpuOps, Attention) {
  for (const std::int64_t tokens : {16, 64, 200})
    for (const std::int64_t width : {64, 128, 160, 256}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, heads of " << width);
      expect_like_cpu([](const auto& t) { return causal_attention(t[0], 2, 4, {}); },
                      {random({2 * tokens, 3 * 4 * width}, "x")}, 0.04);
      const auto with = [&](std::int64_t key_heads, bool is_causal, const at::Tensor& lengths) {
        expect_like_cpu(
            [=](const auto& t) {
              return attention(
                  t[0], t[1], t[2],
                  {.samples = 2, .heads = 4, .key_heads = key_heads, .is_causal = is_causal},
                  lengths.defined() ? lengths.to(t[0].device()) : lengths, {});
            },
            {random({2 * tokens, 4 * width}, "q"), random({2 * tokens, key_heads * width}, "k"),
             random({2 * tokens, key_heads * width}, "v")},
            0.04);
      };
      with(4, true, {});
      with(2, true, {});
      with(4, false, at::tensor({tokens, tokens / 2}));
    }
}

// Rows of zeros behind a weight change nothing, and what else lies there is not looked at.
TEST_F(GpuOps, CrossEntropyWithRoomBehindTheWeight) {
  const at::Tensor x = random({40, 64}, "x").to(at::kBFloat16).to(at::kCUDA);
  const at::Tensor all = random({128, 64}, "w", 0.3).to(at::kBFloat16).to(at::kCUDA);
  const at::Tensor targets = at::randint(101, {40}, at::kLong).to(at::kCUDA);
  const at::Tensor weight = all.narrow(0, 0, 101).detach();  // other rows behind it
  const double expected = cross_entropy(x, weight.clone(), targets).item<double>();
  EXPECT_EQ(cross_entropy(x, weight, targets).item<double>(), expected);
  all.narrow(0, 101, 27).zero_();
  EXPECT_NEAR(cross_entropy(x, weight, targets, nullptr, 0, 27).item<double>(), expected, 1e-5);
}

TEST_F(GpuOps, CrossEntropy) {
  for (const std::int64_t vocabulary : {3, 100, 257, 1000}) {
    SCOPED_TRACE(vocabulary);
    at::Tensor targets = at::randint(vocabulary, {40}, at::kLong);
    targets.narrow(0, 3, 4).fill_(kNoTarget);
    const at::Tensor x = random({40, 64}, "x"), w = random({vocabulary, 64}, "w", 0.3),
                     b = random({vocabulary}, "b");
    for (const double smoothing : {0.0, 0.1}) {
      expect_like_cpu(
          [&](const auto& t) {
            return cross_entropy(t[0], t[1], {}, targets.to(t[0].device()), nullptr, smoothing);
          },
          {x, w}, 0.04);
      expect_like_cpu(
          [&](const auto& t) {
            return cross_entropy(t[0], t[1], t[2], targets.to(t[0].device()), nullptr, smoothing);
          },
          {x, w, b}, 0.04);
    }
  }
}

}  // namespace
}  // namespace laconic
