// update/optimiser.hpp — the algorithms that turn gradients into new parameters: the only code that
// changes them.
//
//   adamw  m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2, p -= lr m^ / (sqrt(v^) + e), decay decoupled
//   adam   the same with g + decay p for g
//   sgd    m = u m + g + decay p, p -= lr m; nesterov: p -= lr (g + decay p + u m)
//   lion   p -= lr sign(b1 m + (1-b1) g), m = b2 m + (1-b2) g, decay decoupled
//   muon   hidden matrices: momentum, made orthogonal (muon.hpp); all other parameters: adamw
//
// Bases of projected boundaries keep orthonormal rows with any of them (spel.hpp).
//
// State is one or two tensors per parameter and a count of updates: all of it goes
// into the checkpoint, and nothing else is needed to continue bit for bit. A
// skipped update (non-finite gradient) changes neither.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/model/weights.hpp"
#include "laconic/runtime/pipeline.hpp"
#include "laconic/tensor/arrival.hpp"
#include "laconic/update/judgement.hpp"

namespace laconic {

struct OptimiserSpec {
  OptimiserKind kind = OptimiserKind::adamw;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // not on one-dimensional parameters
  double momentum = 0.9;      // sgd
  bool nesterov = false;      // sgd
  double muon_rate = 1;       // learning rate of muon's matrices, by that of the others
  double muon_momentum = 0.95;
  MuonScale muon_scale = MuonScale::match_adamw;
};
OptimiserSpec optimiser_spec(const OptimiserSection& optimiser);

struct OptimiserState {
  std::int64_t updates = 0;
  std::vector<at::Tensor> moment1;  // in the order of the parameters
  std::vector<at::Tensor> moment2;  // undefined where the algorithm keeps one only
};

OptimiserState make_optimiser_state(const std::vector<Parameter>& parameters,
                                    OptimiserKind kind = OptimiserKind::adamw);

// squared_norms() that a GPU may still be at work on.
class PendingSquares {
 public:
  explicit PendingSquares(const std::vector<Parameter>& parameters);
  std::vector<double> values() const;  // waits

 private:
  std::vector<double> known_;
  std::optional<Arrival> coming_;
};

// The square of the norm of each gradient, in the order of the parameters. Sums fixed chunks of
// each in a fixed order, so it depends neither on the number of threads nor on what other
// parameters there are. A parameter without a gradient counts as zero.
std::vector<double> squared_norms(const std::vector<Parameter>& parameters);
// The norm of them all: adds from first to last. Whoever has the squares of a whole model in the
// order of their numbers gets the same bits, however many ranks they came from.
double norm_of(const std::vector<double>& squares);
// Euclidean norm over all gradients: norm_of(squared_norms(parameters)).
double global_norm(const std::vector<Parameter>& parameters);

// One step. Gradients are multiplied by `gradient_scale` on the way (clipping). Requires: the state
// was made for the spec's kind.
void apply(const OptimiserSpec& spec, OptimiserState& state,
           const std::vector<Parameter>& parameters, double lr, double gradient_scale);

// A Judgement of a step, before anybody has waited for its gradients. Clips the norm to `clip`, if
// that is above 0. Good is a step whose loss and norm are finite, and `before`, undefined or the
// verdict on the step before, was good, too.
at::Tensor judge(const StepLoss& loss, const std::vector<Parameter>& parameters, double clip,
                 const at::Tensor& before);
// apply() by the verdict's scale, where it is good; otherwise nothing changes but the count of
// updates. A GPU is not waited for. Requires: can_be_judged().
void apply_judged(const OptimiserSpec& spec, OptimiserState& state,
                  const std::vector<Parameter>& parameters, double lr, const at::Tensor& verdict);
bool can_be_judged(const OptimiserSpec& spec, const std::vector<Parameter>& parameters);

// The same when the new first moment is known already and stands where the gradients were: the
// second moment stays as it is (compressed_adam). Requires: adamw.
void apply_moment(const OptimiserSpec& spec, OptimiserState& state,
                  const std::vector<Parameter>& parameters, double lr);

// The same where the second moment is renewed now and then only: `renewals` times by now, this time
// included if it `renews` (local.method = "linear"). Requires: adamw.
struct HeldMoment {
  std::int64_t renewals = 0;
  bool renews = false;
};
void apply_held(const OptimiserSpec& spec, OptimiserState& state,
                const std::vector<Parameter>& parameters, double lr, double gradient_scale,
                const HeldMoment& held);
// What a first moment is divided by at place `p` then.
at::Tensor held_denominator(const OptimiserSpec& spec, const OptimiserState& state, std::size_t p,
                            std::int64_t renewals);

}  // namespace laconic
