// config/optimiser_section.hpp — how parameters are updated: [optimiser].
#pragma once

#include <cstdint>

#include "laconic/config/option.hpp"
#include "laconic/config/steps_or_share.hpp"

namespace laconic {

struct OptimiserSection {
  OptimiserKind kind = OptimiserKind::adamw;
  double lr = 3e-4;
  double min_lr = 3e-5;
  LearningRateShape schedule = LearningRateShape::cosine;
  StepsOrShare warmup = 100;
  std::int64_t decay_steps = 0;
  DecayShape decay = DecayShape::linear;
  double decay_length = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double muon_lr = 0;
  double muon_momentum = 0.95;
  MuonScale muon_scale = MuonScale::match_adamw;

  template <class V>
  void visit(V& v) {
    v("kind", kind,
      "algorithm; adam: weight decay is a part of the gradient; muon: matrices inside the layers, "
      "and adamw for all else",
      kOptimiserKindNames);
    v("lr", lr, "learning rate after warm-up");
    v("min_lr", min_lr, "learning rate at the end of the schedule");
    v("schedule", schedule,
      "shape between lr and min_lr; constant: stays at lr; wsd: stays at lr and decays at the end",
      kLearningRateShapeNames);
    v("warmup", warmup,
      "steps of linear growth from 0 to lr; below 1: that share of the schedule's steps");
    v("decay_steps", decay_steps, "step at which min_lr is reached; 0: train.steps");
    v("decay", decay, "wsd: shape of the decay", kDecayShapeNames);
    v("decay_length", decay_length,
      "wsd: length of the decay; below 1: a share of the schedule, otherwise steps");
    v("beta1", beta1, "decay of the first moment; lion: of what the update takes from it");
    v("beta2", beta2, "decay of the second moment; lion: of its only moment");
    v("epsilon", epsilon, "adamw, adam: added to the root of the second moment");
    v("weight_decay", weight_decay,
      "decoupled (adamw, lion, muon) or added to the gradient (adam, sgd); not on one-dimensional "
      "parameters");
    v("momentum", momentum, "sgd: decay of the sum of gradients");
    v("nesterov", nesterov, "sgd: step from where the momentum leads");
    v("muon_lr", muon_lr, "muon: learning rate of its matrices after warm-up; 0: lr");
    v("muon_momentum", muon_momentum, "muon: decay of the sum of gradients");
    v("muon_scale", muon_scale,
      "muon: rate by shape; match_adamw: 0.2 sqrt(larger side), for a lr that suits adamw; "
      "original: sqrt(max(1, outputs / inputs))",
      kMuonScaleNames);
  }
};

// How many moments the algorithm keeps of a parameter: 1 or 2.
inline int moment_count(OptimiserKind kind, bool is_hidden_matrix) {
  switch (kind) {
    case OptimiserKind::adamw:
    case OptimiserKind::adam: return 2;
    case OptimiserKind::sgd:
    case OptimiserKind::lion: return 1;
    case OptimiserKind::muon: return is_hidden_matrix ? 1 : 2;
  }
  return 2;
}

}  // namespace laconic
