// Projected boundaries of a model (architecture/projection.hpp), there and back.
#include "laconic/model/boundary.hpp"

#include <ATen/ops/eye.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "laconic/model/decode.hpp"
#include "laconic/model/test_gpt.hpp"
#include "laconic/runtime/stage.hpp"

namespace laconic {
namespace {

Projection projection(std::vector<std::int64_t> after, std::int64_t rank,
                      AnchorKind anchor = AnchorKind::none, BasisKind basis = BasisKind::seed) {
  return {.after = std::move(after), .rank = rank, .basis = basis, .anchor = anchor, .seed = 5};
}

GptShape gpt_with(const Projection& projection) {
  GptShape shape = kTinyShape;
  shape.project = projection;
  return shape;
}

Family llama_with(const Projection& projection) {
  return LlamaShape{.layers = 2,
                    .width = 24,
                    .heads = 3,
                    .key_heads = 1,
                    .head_width = 8,
                    .hidden = 32,
                    .context = 10,
                    .vocabulary = 31,
                    .project = projection};
}

Family bert_with(const Projection& projection) {
  return BertShape{.layers = 2,
                   .width = 24,
                   .heads = 3,
                   .hidden = 32,
                   .context = 10,
                   .vocabulary = 31,
                   .project = projection};
}

// Anchors begin with zeros, which would hide mistakes.
Weights anchored_weights(const Family& family) {
  Weights weights = make_weights(family, 11, at::TensorOptions().dtype(at::kDouble));
  const at::NoGradGuard no_grad;
  for (Parameter& p : weights.parameters)
    if (weights.spec.parameters[p.number].is_of_boundary && !p.is_basis)
      for (std::int64_t i = 0; i < p.value.numel(); ++i)
        p.value.data_ptr<double>()[i] = 0.1 * std::sin(static_cast<double>(i + 1));
  return weights;
}

Batch text_batch(std::int64_t samples = 2) {
  const at::Tensor ids = some_ids(samples, kTinyShape.context + 1);
  return {{"ids", ids.narrow(1, 0, kTinyShape.context).contiguous()},
          {"targets", ids.narrow(1, 1, kTinyShape.context).contiguous()}};
}

// One sample has padding behind it.
Batch masked_batch() {
  const at::Tensor ids = some_ids(2, kTinyShape.context);
  return {{"ids", ids},
          {"types", at::zeros_like(ids)},
          {"length", at::tensor(std::vector<std::int64_t>{10, 7}).view({2, 1})},
          {"targets", ids.clone()}};
}

double largest_of(const at::Tensor& x) {
  return x.abs().max().item<double>();
}

TEST(Boundary, WithAllDirectionsItIsThePlainModel) {
  for (const auto& [plain, whole] :
       {std::pair<Family, Family>{kTinyShape, gpt_with(projection({1, 2}, 24))},
        {kTinyShape, gpt_with(projection({1}, 24, AnchorKind::none, BasisKind::learned))},
        {kTinyShape, gpt_with(projection({1, 2}, 24, AnchorKind::initial, BasisKind::pca))},
        {kTinyShape, gpt_with(projection({1, 2}, 24, AnchorKind::none, BasisKind::maps))},
        {kTinyShape, gpt_with(projection({1, 2}, 24, AnchorKind::none, BasisKind::tied))},
        {llama_with({}), llama_with(projection({1, 2}, 24))},
        {bert_with({}), bert_with(projection({1, 2}, 24))}}) {
    SCOPED_TRACE(to_text(whole));
    const Batch batch = is_causal(plain) ? text_batch() : masked_batch();
    Weights expected = make_weights(plain, 11, at::TensorOptions().dtype(at::kDouble));
    Weights found = make_weights(whole, 11, at::TensorOptions().dtype(at::kDouble));
    EXPECT_NEAR(forward_backward(found, batch, {}, 1), forward_backward(expected, batch, {}, 1),
                1e-12);
    for (std::size_t p = 0; p < expected.parameters.size(); ++p)
      EXPECT_LT(largest_of(found.parameters[p].gradient.sub(expected.parameters[p].gradient)),
                1e-12)
          << expected.parameters[p].name;
  }
}

// What the anchors say both ways is the same row: taken off and added, it changes nothing.
TEST(Boundary, EqualAnchorsOnBothSidesCancelWithAllDirections) {
  const Batch batch = text_batch();
  Weights plain = make_weights(Family(kTinyShape), 11, at::TensorOptions().dtype(at::kDouble));
  Weights anchored = anchored_weights(gpt_with(projection({1}, 24, AnchorKind::learned)));
  const ProjectedSeam& seam = anchored.spec.projections[0];
  {
    const at::NoGradGuard no_grad;
    const at::Tensor basis = basis_of(anchored, seam, seam.block);
    at::Tensor(anchored.value(*seam.sent)).copy_(anchored.value(*seam.received).mm(basis.t()));
    at::Tensor(anchored.value(*seam.sent_at))
        .copy_(anchored.value(*seam.received_at).mm(basis.t()));
  }
  EXPECT_NEAR(forward_loss(anchored, batch), forward_loss(plain, batch), 1e-12);
}

TEST(Boundary, GradientsAreThoseOfFiniteDifferencesAnchorsAndBasisIncluded) {
  for (const Family& family :
       {Family(gpt_with(projection({1, 2}, 7, AnchorKind::learned, BasisKind::learned))),
        bert_with(projection({1, 2}, 7, AnchorKind::learned, BasisKind::learned)),
        Family(gpt_with(projection({1}, 5))),
        Family(gpt_with(projection({1, 2}, 5, AnchorKind::none, BasisKind::maps))),
        bert_with(projection({1}, 5, AnchorKind::none, BasisKind::tied)),
        Family(gpt_with(projection({1, 2}, 5, AnchorKind::initial, BasisKind::pca))),
        llama_with(projection({2}, 6, AnchorKind::learned, BasisKind::learned))}) {
    SCOPED_TRACE(to_text(family));
    const Batch batch = is_causal(family) ? text_batch() : masked_batch();
    Weights weights = anchored_weights(family);
    forward_backward(weights, batch, {}, 1);
    for (const Parameter& p : weights.parameters) {
      EXPECT_EQ(p.gradient.defined(), !p.is_frozen) << p.name;
      if (p.is_frozen) continue;
      const double step = 1e-5;
      for (const std::int64_t element :
           {std::int64_t{0}, p.value.numel() / 2, p.value.numel() - 1}) {
        double* x = p.value.data_ptr<double>() + element;
        const double before = *x;
        *x = before + step;
        const double above = forward_loss(weights, batch);
        *x = before - step;
        const double below = forward_loss(weights, batch);
        *x = before;
        const double expected = (above - below) / (2 * step);
        EXPECT_NEAR(p.gradient.flatten()[element].item<double>(), expected,
                    1e-8 + 1e-5 * std::abs(expected))
            << p.name << "[" << element << "]";
      }
    }
  }
}

TEST(Boundary, RecomputingAndHalvesOfBackwardChangeNoBit) {
  const Batch batch = text_batch();
  const Family family = gpt_with(projection({1}, 7, AnchorKind::learned, BasisKind::learned));
  Weights once = anchored_weights(family);
  const double loss = forward_backward(once, batch, {}, 1);
  for (const StageOptions& options :
       {StageOptions{.recompute = true}, StageOptions{.is_split = true}}) {
    Weights again = anchored_weights(family);
    EXPECT_EQ(forward_backward(again, batch, {}, 1, options), loss);
    for (std::size_t p = 0; p < once.parameters.size(); ++p)
      EXPECT_TRUE(again.parameters[p].gradient.equal(once.parameters[p].gradient))
          << once.parameters[p].name;
  }
}

TEST(Boundary, ADecoderGivesTheLogitsOfTheWholeText) {
  const at::Tensor ids = some_ids(1, kTinyShape.context);
  const std::span<const std::int64_t> text(ids.data_ptr<std::int64_t>(), 10);
  for (const Family& family :
       {Family(gpt_with(projection({1, 2}, 7, AnchorKind::learned))),
        Family(gpt_with(projection({1, 2}, 7, AnchorKind::initial))),
        Family(gpt_with(projection({1, 2}, 7, AnchorKind::none, BasisKind::maps))),
        llama_with(projection({1, 2}, 6, AnchorKind::learned, BasisKind::learned))}) {
    const Weights weights = anchored_weights(family);
    const at::Tensor all = forward_logits(weights, ids);
    Decoder decoder(weights);
    at::Tensor logits = decoder.read(text.first(3));
    for (std::size_t at = 3; at < text.size(); ++at) {
      EXPECT_LT(largest_of(logits.sub(all[static_cast<std::int64_t>(at - 1)])), 1e-13);
      logits = decoder.read(text.subspan(at, 1));
    }
  }
}

// Anchors are those of the positions that are scored, not of the first ones.
TEST(Boundary, LossesOfLastPositionsAreThoseOfTheWholeText) {
  const Weights weights =
      anchored_weights(gpt_with(projection({2}, 7, AnchorKind::learned)));  // before the head
  const Batch whole = text_batch(1);
  const auto loss_of_last = [&](std::int64_t scored) {
    return static_cast<double>(scored) *
           forward_loss(weights, {{"ids", whole["ids"]},
                                  {"targets", whole["targets"].narrow(1, 10 - scored, scored)}});
  };
  double sum = 0;
  for (std::int64_t t = 0; t < 10; ++t)
    sum += forward_loss(weights, {{"ids", whole["ids"].narrow(1, 0, t + 1)},
                                  {"targets", whole["targets"].narrow(1, t, 1)}});
  EXPECT_NEAR(loss_of_last(10), sum, 1e-11);
  EXPECT_NEAR(loss_of_last(10) - loss_of_last(9),
              forward_loss(weights, {{"ids", whole["ids"].narrow(1, 0, 1)},
                                     {"targets", whole["targets"].narrow(1, 0, 1)}}),
              1e-11);
}

// As noise the two maps have nothing to do with each other; otherwise they begin as one projection.
TEST(Boundary, MapsBeginAsTheirStartSays) {
  const auto maps_of = [](bool is_drawn) {
    Projection p = projection({1}, 7, AnchorKind::none, BasisKind::maps);
    p.is_drawn = is_drawn;
    const Weights weights = make_weights(gpt_with(p), 11, at::TensorOptions().dtype(at::kDouble));
    const ProjectedSeam& seam = weights.spec.projections[0];
    return std::pair(weights.value(*seam.basis).detach(), weights.value(*seam.decoder).detach());
  };
  const auto [encoder, decoder] = maps_of(false);
  EXPECT_TRUE(encoder.equal(decoder));
  EXPECT_LT(largest_of(encoder.mm(encoder.t()).sub(at::eye(7, at::kDouble))), 1e-14);
  const auto [noise, other] = maps_of(true);
  EXPECT_GT(largest_of(noise.sub(other)), 0.1);
  for (const at::Tensor& map : {noise, other})
    EXPECT_NEAR(map.square().mean().item<double>(), 2.0 / (7 + 24), 0.02);
}

TEST(Boundary, BothSidesDrawTheSameDirectionsWhateverElseTheyHold) {
  const Family family = gpt_with(projection({1, 2}, 7));
  const auto with = [&](const HeldBlocks& held) {
    return make_weights(family, 11, at::TensorOptions().dtype(at::kFloat), held);
  };
  const Weights all = with({}), lower = with({true, true, false, false}),
                upper = with({false, false, true, true});
  EXPECT_TRUE(lower.bases[0].equal(all.bases[0]));
  EXPECT_TRUE(upper.bases[0].equal(all.bases[0]));
  EXPECT_TRUE(upper.bases[1].equal(all.bases[1]));
  EXPECT_FALSE(lower.bases[1].defined()) << "its blocks are elsewhere";
  EXPECT_FALSE(all.bases[0].equal(all.bases[1])) << "each boundary has its own";
  const at::Tensor rows = anchored_weights(family).bases[0];
  EXPECT_LT(largest_of(rows.mm(rows.t()).sub(at::eye(7, at::kDouble))), 1e-14);
}

}  // namespace
}  // namespace laconic
