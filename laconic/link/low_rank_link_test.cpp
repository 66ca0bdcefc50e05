// Lazy error propagation over a link, as an epilogue policy uses it: some messages of a step are
// encoded by low rank and leave a residual, the others travel raw and leave it alone. L1 to L5 of
// the specification of Optimus-CC, and its pitfalls 1 to 4 (docs/paper-tests.md).
#include <fmt/format.h>

#include <limits>

#include "laconic/file/test_folder.hpp"
#include "laconic/link/test_link.hpp"

namespace laconic {
namespace {

constexpr std::uint64_t kMessages = 5;  // of a step
constexpr unsigned kSubsets = 1U << kMessages;
constexpr unsigned kEpilogue = 1U << (kMessages - 1);  // the last of a step alone

LinkSpec low_rank(std::int64_t rank = 3, MemorySpec memory = ErrorFeedback{}) {
  return {"pp.gradient.1-0", LowRank{rank}, memory};
}

MessageSpec message_of(unsigned subset, std::uint64_t number) {
  return {.number = static_cast<int>(number),
          .use = (subset >> number & 1) != 0 ? Use::train : Use::bypass};
}

Floats gradient(std::uint64_t step, std::uint64_t number) {
  return normal(kElements, 1000 + 10 * step + number);
}

Floats scaled(Floats x, float factor) {
  for (float& v : x) v *= factor;
  return x;
}

// [rows, columns] of rank `rank`.
Floats of_rank(std::size_t rank, std::uint64_t seed) {
  Floats product(kElements);
  const Floats left = normal(kRows * rank, seed), right = normal(kColumns * rank, seed + 1);
  for (std::size_t i = 0; i < kRows; ++i)
    for (std::size_t j = 0; j < kColumns; ++j)
      for (std::size_t k = 0; k < rank; ++k)
        product[i * kColumns + j] += left[i * rank + k] * right[j * rank + k];
  return product;
}

// A whole step, in which the policy encodes `subset`; what arrives, message by message.
std::vector<Floats> run_step(LinkPair& link, unsigned subset) {
  std::vector<Floats> out;
  const std::uint64_t step = link.steps;
  link.begin();
  for (std::uint64_t m = 0; m < kMessages; ++m)
    out.push_back(link.send(gradient(step, m), message_of(subset, m)));
  link.commit();
  return out;
}

// --- L1

TEST(LowRankLink, NothingIsLostWhicheverMessagesAreEncoded) {
  for (unsigned subset = 0; subset < kSubsets; ++subset) {
    LinkPair link(low_rank(), kMatrix);
    std::vector<double> missing(kElements), given(kElements);
    for (std::uint64_t step = 0; step < 4; ++step) {
      // Each step another subset, with every subset the first of some run.
      const unsigned now = (subset + 11 * static_cast<unsigned>(step)) % kSubsets;
      const std::vector<Floats> out = run_step(link, now);
      for (std::uint64_t m = 0; m < kMessages; ++m) {
        const Floats g = gradient(step, m);
        EXPECT_TRUE((now >> m & 1) != 0 || same_bits(out[m], g)) << subset << ", message " << m;
        for (std::size_t i = 0; i < kElements; ++i) {
          missing[i] += double{g[i]} - double{out[m][i]};
          given[i] += g[i];
        }
      }
    }
    const Floats owed = residual_of(link);
    double error = 0, whole = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      error += std::pow(missing[i] - double{owed[i]}, 2);
      whole += std::pow(given[i], 2);
    }
    EXPECT_LT(std::sqrt(error / whole), 1e-6) << subset;
    EXPECT_GT(norm(owed), 1.0) << subset;
  }
}

TEST(LowRankLink, WithoutEncodedMessagesThereIsNoResidual) {
  LinkPair link(low_rank(), kMatrix);
  run_step(link, 0);
  EXPECT_TRUE(link.sender.residual().empty());
}

TEST(LowRankLink, AtFullRankNothingIsOwed) {
  LinkPair link(low_rank(kRows), kMatrix);
  for (int step = 0; step < 3; ++step) run_step(link, kSubsets - 1);
  EXPECT_LT(norm(residual_of(link)), 1e-5 * norm(gradient(0, 0)));
}

// --- L2: a linear stage below the link, with inputs X_i: [rows, inputs], sums X_i^T out_i into the
// gradient of its weights.

constexpr std::size_t kInputs = 6;

// sum += factor x^T y
void add_product(std::vector<double>& sum, const Floats& x, const Floats& y, double factor) {
  for (std::size_t k = 0; k < kRows; ++k)
    for (std::size_t i = 0; i < kInputs; ++i)
      for (std::size_t j = 0; j < kColumns; ++j)
        sum[i * kColumns + j] += factor * x[k * kInputs + i] * y[k * kColumns + j];
}

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

// sum X_i^T out_i = sum X_i^T g_i - sum (X_i - X_next)^T e_i - X_last^T e_last, over encoded i,
// where `next` is the next encoded one. Returns what the two sides differ by, relatively.
double identity_error(unsigned subset, bool equal_inputs) {
  LinkPair link(low_rank(), kMatrix);
  std::vector<double> difference(kInputs * kColumns), exact(kInputs * kColumns);
  Floats last_input;
  for (std::uint64_t i = 0; i < 3 * kMessages; ++i) {
    const std::uint64_t number = i % kMessages;
    if (number == 0) link.begin();
    const Floats x = normal(kRows * kInputs, equal_inputs ? 7 : 70 + i);
    const Floats g = gradient(0, i), before = residual_of(link);
    add_product(difference, x, link.send(g, message_of(subset, number)), 1);
    add_product(difference, x, g, -1);
    add_product(exact, x, g, 1);
    if ((subset >> number & 1) != 0) {
      if (!last_input.empty()) add_product(difference, last_input - x, before, 1);
      last_input = x;
    }
    if (number + 1 == kMessages) link.commit();
  }
  if (!last_input.empty()) add_product(difference, last_input, residual_of(link), 1);
  return norm_of(difference) / norm_of(exact);
}

TEST(LowRankLink, WeightGradientsErrByTheChangeOfInputs) {
  for (unsigned subset = 0; subset < kSubsets; ++subset) {
    EXPECT_LT(identity_error(subset, false), 1e-6) << subset;
    // With equal inputs the differences vanish exactly, and the last residual is all that is left.
    EXPECT_LT(identity_error(subset, true), 1e-6) << subset;
  }
}

// --- L3

// |mean out - mean g| / |mean g| over messages that are encoded once a step.
double error_of_mean(std::uint64_t steps, const MemorySpec& memory) {
  LinkPair link(low_rank(3, memory), kMatrix);
  Floats sent(kElements), given(kElements);
  const Floats constant = normal(kElements, 3);
  for (std::uint64_t step = 0; step < steps; ++step) {
    link.begin();
    for (std::uint64_t m = 0; m < kMessages; ++m) {
      const Floats g = constant + scaled(gradient(step, m), 0.3F);
      sent = sent + link.send(g, message_of(kEpilogue, m));
      given = given + g;
    }
    link.commit();
  }
  return norm(sent - given) / norm(given);
}

TEST(LowRankLink, TheErrorOfTheMeanFallsOnlyWithFeedback) {
  const double few = error_of_mean(25, ErrorFeedback{}), many = error_of_mean(200, ErrorFeedback{});
  EXPECT_LT(many, few / 5);  // 1 / N would be 8
  EXPECT_GT(error_of_mean(200, NoMemory{}), 0.5 * error_of_mean(25, NoMemory{}));
  EXPECT_LT(many, 0.1 * error_of_mean(200, NoMemory{}));
  EXPECT_GT(error_of_mean(200, ErrorFeedback{Reset::step}), 5 * many);
}

// --- L4

TEST(LowRankLink, TheResidualOfAStepsOneEncodedMessageEntersTheNextStep) {
  for (const Reset reset : {Reset::never, Reset::step}) {
    LinkPair link(low_rank(3, ErrorFeedback{reset}), kMatrix);
    Floats before(kElements);
    for (std::uint64_t step = 0; step < 6; ++step) {
      const Floats out = run_step(link, kEpilogue).back();
      const Floats entered = reset == Reset::never ? before : Floats(kElements);
      const Floats wanted = gradient(step, kMessages - 1) + entered;
      EXPECT_LT(relative_error(out + residual_of(link), wanted), 1e-6) << step;
      before = residual_of(link);
      EXPECT_GT(norm(before), 0.1 * norm(wanted));
    }
  }
}

// --- L5, pitfall 4

TEST(LowRankLink, AnAbandonedStepNeverWas) {
  for (unsigned subset = 1; subset < kSubsets; subset += 2) {
    LinkPair plain(low_rank(), kMatrix), skipping(low_rank(), kMatrix);
    for (int step = 0; step < 4; ++step) {
      skipping.begin();
      for (std::uint64_t m = 0; m < kMessages; ++m)
        skipping.send(gradient(50 + skipping.steps, m), message_of(~subset | 1, m));
      skipping.abandon();
      --skipping.steps;  // tried again
      EXPECT_EQ(run_step(skipping, subset), run_step(plain, subset)) << subset << ", step " << step;
      EXPECT_EQ(residual_of(skipping), residual_of(plain));
    }
  }
}

TEST(LowRankLink, ACheckpointContinuesBitForBit) {
  const TemporaryFolder folder;
  for (unsigned subset = 0; subset < kSubsets; subset += 3) {
    LinkPair plain(low_rank(), kMatrix);
    Floats residual;
    for (int step = 0; step < 4; ++step) {
      LinkPair restored(low_rank(), kMatrix);
      if (step > 0) restored.sender.load(folder / "sender");
      restored.steps = plain.steps;
      EXPECT_EQ(run_step(restored, subset), run_step(plain, subset)) << subset << ", step " << step;
      EXPECT_EQ(restored.last, plain.last);
      EXPECT_EQ(residual_of(restored), residual_of(plain));
      restored.sender.save(folder / "sender");
    }
  }
}

// --- pitfalls 1 to 3. Residuals are dropped with every step here, warm starts are not: what
// arrives depends on nothing but the matrix and where the codec starts to look.

LinkSpec forgetful(std::int64_t rank) {
  return low_rank(rank, ErrorFeedback{Reset::step});
}

void expect_arrival(LinkPair& link, std::size_t rank, const std::string& after, float scale = 1) {
  const Floats x = scaled(of_rank(rank, 500 + 2 * link.steps), scale);
  EXPECT_LT(relative_error(link.step(x), x), 1e-5) << "rank " << rank << " after " << after;
  EXPECT_LT(norm(residual_of(link)), 1e-5 * norm(x)) << "rank " << rank << " after " << after;
}

TEST(LowRankLink, AMatrixOfLowerRankArrivesAndCostsNoDirection) {
  for (const std::size_t rank : {1, 2, 5}) {
    LinkPair link(forgetful(8), kMatrix);
    expect_arrival(link, rank, "nothing");
    expect_arrival(link, rank, "others of its rank");
    expect_arrival(link, 7, "lower ranks");
  }
}

TEST(LowRankLink, ZerosAndNumbersThatAreNotFiniteAreForgottenAtOnce) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const bool is_fresh : {true, false}) {
    LinkPair link(forgetful(4), kMatrix);
    if (!is_fresh) link.step(gradient(0, 0));
    for (const float bad : {0.0F, kNan, 0.0F, kInfinity, -kInfinity, 0.0F}) {
      Floats x(kElements);
      x[17] = bad;
      const Floats out = link.step(x);
      for (const float y : out) EXPECT_TRUE(bad == 0 ? y == 0 : std::isnan(y));
      expect_arrival(link, 3, fmt::format("{}", bad));
    }
  }
}

TEST(LowRankLink, AMessageThatIsNotFiniteLeavesTheResidual) {
  LinkPair link(low_rank(), kMatrix);
  link.step(gradient(0, 0));
  const Floats owed = residual_of(link);
  Floats broken = gradient(1, 0);
  broken[17] = std::numeric_limits<float>::quiet_NaN();
  link.step(broken);
  EXPECT_EQ(residual_of(link), owed);
  const Floats g = gradient(2, 0), out = link.step(g);
  EXPECT_LT(relative_error(out + residual_of(link), g + owed), 1e-6);
}

TEST(LowRankLink, SmallGradientsErrNoMoreThanLargeOnes) {
  const auto errors_at = [](float scale) {
    LinkPair link(low_rank(), kMatrix);
    std::vector<double> errors;
    for (std::uint64_t step = 0; step < 8; ++step) {
      const Floats x = scaled(gradient(step, 0), scale);
      errors.push_back(relative_error(link.step(x), x));
      errors.push_back(norm(residual_of(link)) / norm(x));
    }
    return errors;
  };
  const std::vector<double> at_one = errors_at(1);
  for (const float scale : {1e-4F, 1e-6F, 1e-12F, 1e-24F, 1e12F}) {
    const std::vector<double> errors = errors_at(scale);
    for (std::size_t i = 0; i < errors.size(); ++i)
      EXPECT_NEAR(errors[i], at_one[i], 1e-3 * at_one[i]) << scale << ", number " << i;
    LinkPair link(forgetful(4), kMatrix);
    for (const char* after : {"nothing", "one like it", "two like it"})
      expect_arrival(link, 3, after, scale);
  }
}

}  // namespace
}  // namespace laconic
