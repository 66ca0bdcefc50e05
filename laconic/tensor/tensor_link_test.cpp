#include "laconic/tensor/tensor_link.hpp"

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "laconic/base/error.hpp"
#include "laconic/tensor/host.hpp"

namespace laconic {
namespace {

struct TensorPair {
  Sender sender;
  Receiver receiver;
  explicit TensorPair(const LinkSpec& spec)
      : sender(with_samples(spec)), receiver(with_samples(spec)) {}

  static LinkSpec with_samples(LinkSpec spec) {
    spec.numbering.samples = 8;
    return spec;
  }

  at::Tensor send(const at::Tensor& x, const MessageSpec& message = {}) {
    const SharedBytes bytes = pack(sender, x, message);
    return unpack(receiver, bytes, spec_of(x), x.device(), message).tensor;
  }
};

at::Tensor counted(std::vector<std::int64_t> sizes, at::ScalarType type) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::arange(count, at::kDouble).sub(3).view(sizes).to(type);
}

TEST(TensorLink, AnyStridesDtypeAndShapeArriveRaw) {
  for (const at::ScalarType type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kByte})
    for (const auto& sizes : std::vector<std::vector<std::int64_t>>{
             {}, {0}, {7}, {3, 5}, {2, 3, 4}, {2, 0, 3}, {2, 3, 4, 5}}) {
      TensorPair link({"test.link", Raw{}});
      const at::Tensor x = counted(sizes, type);
      EXPECT_TRUE(link.send(x).equal(x));
      if (sizes.size() < 2) continue;
      const at::Tensor turned = x.transpose(0, 1);
      EXPECT_TRUE(link.send(turned).equal(turned));
      const at::Tensor every_other = x.slice(-1, 0, x.size(-1), 2);
      EXPECT_TRUE(link.send(every_other).equal(every_other));
    }
}

TEST(TensorLink, ATensorOfAGraphStaysInIt) {
  TensorPair link({"test.link", Half{}});
  const at::Tensor weight = counted({4, 8}, at::kFloat).requires_grad_();
  const at::Tensor x = weight.mul(2);
  const at::Tensor got = link.send(x);
  EXPECT_FALSE(got.requires_grad());
  x.sum().backward();
  EXPECT_EQ(weight.grad().sum().item<float>(), 64.0F);
}

TEST(TensorLink, DeltasWorkOnTransposedBatches) {
  TensorPair link({"test.link", parse_codec("quantise:bits=4,block=8"), Delta{.first = Raw{}}});
  const std::vector<std::uint64_t> keys{5, 6, 7};
  const at::Tensor x = counted({8, 3, 4}, at::kFloat).transpose(0, 1);
  for (int visit = 0; visit < 3; ++visit) {
    link.sender.begin(visit);
    link.receiver.begin(visit);
    EXPECT_TRUE(link.send(x, {.samples = keys}).equal(x));
    link.sender.commit();
    link.receiver.commit();
  }
}

TEST(TensorLink, ATensorOnAGpuArrivesOnAGpu) {
  if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "no CUDA in this libtorch, or no GPU";
  const LinkSpec spec{"test.link", parse_codec("quantise:bits=4"), ErrorFeedback{}};
  TensorPair gpu(spec), cpu(spec);
  const at::Tensor x = counted({64, 40}, at::kFloat).sin();
  for (int message = 0; message < 3; ++message) {
    const at::Tensor got = gpu.send(x.to(at::kCUDA));
    EXPECT_TRUE(got.is_cuda());
    EXPECT_TRUE(got.cpu().equal(cpu.send(x)));
  }
}

TEST(TensorLink, NoFrameCanAskForMemory) {
  Sender sender({"test.link", parse_codec("top_k:count=1")});
  Receiver receiver({"test.link", parse_codec("top_k:count=1")});
  const SharedBytes bytes = pack(sender, counted({1 << 20}, at::kFloat));  // 40 bytes that mean 4 MiB
  EXPECT_THROW(unpack(receiver, bytes, {Dtype::f32, {16}}, at::kCPU), WireError);
}

}  // namespace
}  // namespace laconic
