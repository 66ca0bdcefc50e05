// What links remember at the boundaries of a model that trains.
//
// Bounds were set from five seeds each, with the measured range beside them; the seed of a test is
// the first of these. Numbers depend on the machine's arithmetic only in their last digits.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "lossy_model.hpp"
#include "pipeline_ranks.hpp"

namespace laconic {
namespace {

constexpr std::int64_t kSamples = 36, kContext = 24, kBatch = 12, kMicrobatches = 6;
constexpr std::int64_t kStepsPerEpoch = kSamples / kBatch;
constexpr std::size_t kBoundaries = 2;

// A GPT of three stages that has learned one text goes on with another, sample after sample,
// without dropout: what both papers call fine-tuning.
class PipelineMemory : public PipelineParallel {
 protected:
  PipelineMemory() {
    std::string text;
    for (int i = 0; text.size() < kSamples * kContext; ++i)
      text += fmt::format("Line {} of another text that says no more. ", (5 * i) % 17);
    text.resize(kSamples * kContext);
    std::ofstream(folder_ / "text.txt") << text;
    prepare({.inputs = {folder_ / "text.txt"}, .output = folder_ / "another"});
  }

  RunConfig going_on(std::int64_t epochs, const std::vector<std::string>& sets) {
    RunConfig c = config("another", kBoundaries + 1);
    c.run.seed = seed_;
    c.model.start = learned();
    c.model.layers = 2;
    c.model.width = 32;
    c.model.dropout = 0;
    c.data.train = folder_ / "another";
    c.train.batch = kBatch;
    c.train.microbatch = kBatch / kMicrobatches;
    c.train.steps = epochs * kStepsPerEpoch;
    c.optimiser.lr = 1e-3;
    c.optimiser.min_lr = 1e-4;
    c.optimiser.warmup = kStepsPerEpoch;
    set(c, sets);
    return c;
  }

  // Takes all steps; the mean losses of the first and of the last.
  std::pair<double, double> walk(const RunConfig& c, const Watch& watch) {
    const Dataset data = open_dataset(c.data.train, c.model.context, 257);
    EXPECT_EQ(samples_in(data), static_cast<std::uint64_t>(kSamples));
    LossyModel model(c, data, watch);
    const double first = model.step(0);
    double last = first;
    for (std::int64_t s = 1; s < c.train.steps; ++s) last = model.step(s);
    return {first, last};
  }

  std::int64_t seed_ = 1;

 private:
  // Trained alone, without any loss: 150 steps to less than 0.5 nats a token.
  std::string learned() {
    std::string& checkpoint = learned_[seed_];
    if (!checkpoint.empty()) return checkpoint;
    RunConfig c = config(fmt::format("learned-{}", seed_), 1);
    c.run.seed = seed_;
    c.model.layers = 2;
    c.model.width = 32;
    c.model.dropout = 0;
    c.data.valid = "";
    c.train.steps = 150;
    c.train.batch = c.train.microbatch = kBatch;
    const TrainSummary summary = train({.config = c});
    EXPECT_LT(summary.loss, 1);
    return checkpoint = summary.checkpoint;
  }

  std::map<std::int64_t, std::string> learned_;
};

double norm_of(const at::Tensor& x) {
  return x.norm().item<double>();
}

double cosine(const at::Tensor& a, const at::Tensor& b) {
  return a.mul(b).sum().item<double>() / (norm_of(a) * norm_of(b));
}

void add_to(at::Tensor& sum, const at::Tensor& x) {
  sum = sum.defined() ? sum.add(x) : x;
}

struct Mean {
  double sum = 0, most = 0;  // most: of magnitudes
  int count = 0;
  void add(double x) {
    sum += x;
    most = std::max(most, std::abs(x));
    ++count;
  }
  double mean() const { return sum / count; }
};

// The gradients of one boundary. X is the input of the stage that the gradient g comes from, e
// the residual after it.
struct Propagation {
  Mean cosine;     // of e_i and X_i - X_i+1, in a step
  Mean magnitude;  // of that cosine
  Mean mean;       // of the elements of e, by the root of their mean square
  Mean ratio;      // ||e|| / ||g||
  Mean telescope;  // || sum out + e_last - sum g - e_before || / || sum g ||, in a step
  at::Tensor x, e, given, arrived, owed;

  void forward(const Passage& m) {
    if (m.microbatch > 0 && e.defined()) {
      cosine.add(laconic::cosine(e, x.sub(m.arrived)));
      magnitude.add(std::abs(laconic::cosine(e, x.sub(m.arrived))));
    }
    x = m.arrived;
  }

  void backward(const Passage& m) {
    if (m.microbatch == 0) {
      given = arrived = at::Tensor();
      owed = e.defined() ? e : at::empty_like(m.given).zero_();
    }
    add_to(given, m.given);
    add_to(arrived, m.arrived);
    e = at::empty(m.given.sizes(), m.given.options());
    std::copy(m.residual.begin(), m.residual.end(), e.data_ptr<float>());
    mean.add(e.mean().item<double>() / (norm_of(e) / std::sqrt(static_cast<double>(e.numel()))));
    ratio.add(norm_of(e) / norm_of(m.given));
    if (m.microbatch + 1 == kMicrobatches)
      telescope.add(norm_of(arrived.add(e).sub(given).sub(owed)) / norm_of(given));
  }
};
using Propagations = std::array<Propagation, kBoundaries>;

Watch watch(Propagations& boundaries) {
  return [&](const Passage& m) {
    if (m.is_gradient)
      boundaries[m.edge].backward(m);
    else
      boundaries[m.edge].forward(m);
  };
}

TEST_F(PipelineMemory, WhatALowRankGradientOwesIsNotAlongTheChangeOfInputs) {
  Propagations boundaries;
  const auto [first, last] =
      walk(going_on(10, {"pp.gradient.codec=low_rank:rank=2", "pp.gradient.memory=feedback"}),
           watch(boundaries));
  EXPECT_LT(last, first - 0.8);  // by 1.1 to 1.6
  for (std::size_t b = 0; b < kBoundaries; ++b) {
    SCOPED_TRACE(fmt::format("boundary {}", b));
    const Propagation& p = boundaries[b];
    EXPECT_EQ(p.cosine.count, 10 * kStepsPerEpoch * (kMicrobatches - 1));
    // Two random vectors of so many elements (48 x 32) have 0.020 in the mean.
    EXPECT_LT(p.magnitude.mean(), 0.06);         // 0.031 to 0.040
    EXPECT_LT(p.magnitude.most, 0.3);            // 0.10 to 0.15
    EXPECT_LT(std::abs(p.cosine.mean()), 0.03);  // at most 0.012
    // Rows of the gradient of a normalised input sum to zero, and those of its projection too.
    EXPECT_LT(p.mean.most, 1e-6);       // 2e-8 to 5e-8
    EXPECT_LT(p.telescope.most, 1e-6);  // 1.0e-7 to 1.2e-7
    // More can be owed than a message holds, if several left it; but it does not go on growing.
    EXPECT_GT(p.ratio.mean(), b == 0 ? 0.7 : 1.3);  // 0.91 to 1.51, 1.66 to 1.73
    EXPECT_LT(p.ratio.most, 4);                     // 1.36 to 2.42
  }
}

// The activations of one boundary, by epoch.
struct Approach {
  std::vector<Mean> difference;  // ||a - m|| / ||a||, m being what is remembered before the visit
  std::vector<Mean> error;       // the same of what arrived
};
using Approaches = std::array<Approach, kBoundaries>;

Watch watch(Approaches& boundaries, std::int64_t epochs) {
  for (Approach& boundary : boundaries) {
    boundary.difference.resize(static_cast<std::size_t>(epochs));
    boundary.error.resize(static_cast<std::size_t>(epochs));
  }
  return
      [&boundaries, visited = std::array<std::int64_t, kBoundaries>()](const Passage& m) mutable {
        if (m.is_gradient) return;
        const auto epoch =
            static_cast<std::size_t>(visited[m.edge]++ / (kStepsPerEpoch * kMicrobatches));
        EXPECT_EQ(m.reference.defined(), epoch > 0);
        if (epoch > 0)
          boundaries[m.edge].difference[epoch].add(norm_of(m.given.sub(m.reference)) /
                                                   norm_of(m.given));
        boundaries[m.edge].error[epoch].add(norm_of(m.given.sub(m.arrived)) / norm_of(m.given));
      };
}

std::vector<std::string> differences(int bits, const std::string& first,
                                     const std::string& reference) {
  return {"pp.activation.memory=delta", fmt::format("pp.activation.codec=quantise:bits={}", bits),
          "pp.activation.first=" + first, "pp.activation.reference=" + reference};
}

struct Frozen {
  int bits;
  const char* reference;
  double first;   // the difference at the second visit, at least
  double factor;  // from visit to visit, at most, until
  double floor;   // is reached before the end,
  double ground;  // but not this
};
// Factors were 0.35 to 0.52 at 2 bits, where the input of the second boundary is still on its way
// itself, and 0.07 to 0.13 at 4; ends 1.2e-5 to 6.6e-5, 0.0020 to 0.0023, 0.0059 to 0.0071; less
// than 1e-10, 0.0017, 0.0056 to 0.0064.
const std::vector<Frozen> kFrozen = {
    {2, "f32", 0.3, 0.6, 1e-4, 0},          {2, "bf16", 0.3, 0.6, 0.003, 0.001},
    {2, "q8", 0.3, 0.6, 0.009, 0.003},      {4, "f32", 0.08, 0.25, 1e-7, -1},
    {4, "bf16", 0.08, 0.25, 0.0025, 0.001}, {4, "q8", 0.08, 0.25, 0.008, 0.003}};

TEST_F(PipelineMemory, AFrozenModelIsApproachedGeometricallyDownToTheFloorOfReferences) {
  const std::int64_t epochs = 12;
  for (const Frozen& row : kFrozen) {
    RunConfig c = going_on(
        epochs, differences(row.bits, fmt::format("quantise:bits={}", row.bits), row.reference));
    c.optimiser.lr = c.optimiser.min_lr = 0;
    Approaches boundaries;
    walk(c, watch(boundaries, epochs));
    for (std::size_t b = 0; b < kBoundaries; ++b) {
      SCOPED_TRACE(fmt::format("{} bits, {}, boundary {}", row.bits, row.reference, b));
      const std::vector<Mean>& found = boundaries[b].difference;
      EXPECT_GT(found[1].mean(), row.first);
      for (std::size_t e = 2; e < found.size(); ++e)
        EXPECT_LT(found[e].mean(), std::max(row.factor * found[e - 1].mean(), row.floor)) << e;
      EXPECT_LT(found.back().mean(), row.floor);
      EXPECT_GT(found.back().mean(), row.ground);
    }
  }
}

TEST_F(PipelineMemory, WhileAModelLearnsItsSamplesChangeLessAndLess) {
  const std::int64_t epochs = 12;
  for (const int bits : {2, 4}) {
    Approaches boundaries;
    const auto [first, last] =
        walk(going_on(epochs, differences(bits, "half", "f32")), watch(boundaries, epochs));
    EXPECT_LT(last, first - 1);  // by 1.7 to 2.6
    for (std::size_t b = 0; b < kBoundaries; ++b) {
      const auto& [difference, error] = boundaries[b];
      for (std::size_t e = 1; e < difference.size(); ++e) {
        SCOPED_TRACE(fmt::format("{} bits, boundary {}, epoch {}", bits, b, e));
        EXPECT_LT(difference[e].mean(), 0.5);  // at most 0.35
        EXPECT_LT(error[e].mean(), (bits == 2 ? 0.65 : 0.25) * difference[e].mean());  // 0.54, 0.17
        // In the first the rate grows, in the second no reference was encoded as a difference.
        if (e > 3) {
          EXPECT_LT(difference[e].mean(), difference[e - 1].mean());
        }
      }
      EXPECT_LT(difference.back().mean(), 0.06);  // 0.011 to 0.034
    }
  }
}

}  // namespace
}  // namespace laconic
