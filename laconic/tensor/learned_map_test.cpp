#include "laconic/tensor/learned_map.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <gtest/gtest.h>

#include <cmath>

#include "laconic/tensor/host.hpp"

namespace laconic {
namespace {

at::Tensor drawn(std::vector<std::int64_t> sizes, std::uint64_t seed, at::ScalarType type) {
  const at::Tensor x = at::empty(sizes, at::kDouble);
  fill_normal(key_of(seed), 0, 0.0, 1.0,
              std::span<double>(x.data_ptr<double>(), static_cast<std::size_t>(x.numel())));
  return x.to(type);
}

double distance_between(const at::Tensor& a, const at::Tensor& b) {
  return a.sub(b).abs().max().item<double>();
}

LearnedMap map_of(std::int64_t width, std::int64_t code, MapStart start, at::ScalarType type) {
  return make_learned_map(width, code, start, key_of(3), at::TensorOptions(type));
}

TEST(LearnedMap, CodesOfPartsMayBeSummed) {
  const LearnedMap map = map_of(48, 6, MapStart::xavier, at::kDouble);
  at::Tensor codes = at::empty({0}), dense = codes;
  for (const std::uint64_t rank : {1, 2, 3, 4}) {
    const at::Tensor x = drawn({2, 5, 48}, rank, at::kDouble);
    const at::Tensor z = map_down(x, map.encoder);
    codes = rank == 1 ? z : codes.add(z);
    dense = rank == 1 ? x : dense.add(x);
  }
  EXPECT_LT(distance_between(map_up(codes, map.decoder),
                             dense.matmul(map.encoder.t()).matmul(map.decoder.t())),
            1e-12);
}

TEST(LearnedMap, AnOrthogonalStartOfFullWidthIsTheIdentity) {
  const LearnedMap map = map_of(20, 20, MapStart::orthogonal, at::kDouble);
  const at::Tensor x = drawn({3, 20}, 1, at::kDouble);
  EXPECT_LT(distance_between(map_up(map_down(x, map.encoder), map.decoder), x), 1e-12);
  // And a projection when it is narrower: applying it twice changes nothing more.
  const LearnedMap narrow = map_of(20, 7, MapStart::orthogonal, at::kDouble);
  const at::Tensor once = map_up(map_down(x, narrow.encoder), narrow.decoder);
  EXPECT_LT(distance_between(map_up(map_down(once, narrow.encoder), narrow.decoder), once), 1e-12);
  EXPECT_LT(once.norm().item<double>(), x.norm().item<double>());
}

// One pass of Gram-Schmidt would leave twenty times as much in a square of this size.
TEST(LearnedMap, AnOrthogonalStartIsSoToTheLastBits) {
  const LearnedMap map = map_of(200, 200, MapStart::orthogonal, at::kDouble);
  EXPECT_LT(distance_between(map.encoder.matmul(map.decoder), at::eye(200, at::kDouble)), 6e-15);
}

TEST(LearnedMap, XavierHasThePublishedBoundAndVariance) {
  const LearnedMap map = map_of(1024, 50, MapStart::xavier, at::kFloat);
  const double bound = std::sqrt(6.0 / 1074);
  EXPECT_LE(map.encoder.abs().max().item<double>(), bound);
  EXPECT_NEAR(map.encoder.square().mean().item<double>(), bound * bound / 3, 1e-5);
  const at::Tensor x = drawn({64, 1024}, 1, at::kFloat);
  const double variance =
      map_up(map_down(x, map.encoder), map.decoder).square().mean().item<double>();
  EXPECT_NEAR(variance, 0.18, 0.02);  // (2h / (h + e)) (2e / (h + e))
  EXPECT_EQ(distance_between(map.encoder, map_of(1024, 50, MapStart::xavier, at::kFloat).encoder),
            0);
  // Both sides are drawn apart.
  EXPECT_GT(distance_between(map.encoder.flatten(), map.decoder.flatten()), bound);
}

// The loss behind the link trains both maps: finite differences in f64, through a detached code as
// on a link, whose gradient is what travels back.
TEST(LearnedMap, TheTaskLossTrainsBothMaps) {
  LearnedMap map = map_of(10, 3, MapStart::xavier, at::kDouble);
  const at::Tensor x = drawn({4, 10}, 5, at::kDouble), wanted = drawn({4, 10}, 6, at::kDouble);
  const auto loss = [&](const at::Tensor& encoder, const at::Tensor& decoder) {
    return map_up(map_down(x, encoder), decoder).sub(wanted).square().sum();
  };
  map.encoder.requires_grad_();
  map.decoder.requires_grad_();
  const at::Tensor sent = map_down(x, map.encoder);
  const at::Tensor received = sent.detach().requires_grad_();
  map_up(received, map.decoder).sub(wanted).square().sum().backward();
  sent.backward(received.grad());
  for (const bool is_encoder : {true, false}) {
    const at::Tensor& weight = is_encoder ? map.encoder : map.decoder;
    for (std::int64_t i = 0; i < weight.numel(); ++i) {
      constexpr double kStep = 1e-6;
      const auto moved = [&](double by) {
        at::Tensor other = weight.detach().clone();
        other.view(-1)[i] += by;
        return (is_encoder ? loss(other, map.decoder) : loss(map.encoder, other)).item<double>();
      };
      const double slope = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      EXPECT_NEAR(weight.grad().view(-1)[i].item<double>(), slope, 1e-5 * (1 + std::abs(slope)));
    }
  }
}

TEST(LearnedMap, TheHostCodecWritesTheSameNumbers) {
  const LearnedMap map = map_of(40, 8, MapStart::xavier, at::kFloat);
  const at::Tensor x = drawn({3, 5, 40}, 9, at::kFloat);
  const CodecSpec codec = AutoEncoder{.code = 8};
  const TensorSpec spec = spec_of(x);
  const CodecInput input{.maps = host_maps(map)};
  Bytes payload(max_payload_bytes(codec, spec));
  encode(codec, {spec, x.data_ptr()}, input, payload);
  const at::Tensor code = tensor_from_bytes(payload, Dtype::f32, {3, 5, 8});
  EXPECT_LT(distance_between(code, map_down(x, map.encoder)), 1e-5);
  const at::Tensor decoded = at::empty({3, 5, 40}, at::kFloat);
  decode(codec, payload, input, {spec, decoded.data_ptr()});
  EXPECT_LT(distance_between(decoded, map_up(code, map.decoder)), 1e-5);
}

}  // namespace
}  // namespace laconic
