// config/mesh_section.hpp — how a training is spread over ranks: [mesh], [tensor], [pipeline],
// [local], [steering].
#pragma once

#include <cstdint>
#include <string>

#include "laconic/config/option.hpp"
#include "laconic/layout/grid_plan.hpp"
#include "laconic/schedule/fragment.hpp"

namespace laconic {

// pipeline.split when it is no list of layers.
inline constexpr const char* kSplitAuto = "auto";
inline constexpr const char* kSplitMeasured = "measured";
// pipeline.schedule when it is to be chosen.
inline constexpr const char* kScheduleAuto = "auto";
// mesh.order when it is no list of axes.
inline constexpr const char* kOrderAuto = "auto";

struct MeshSection {
  std::int64_t pp = 1;
  std::int64_t dp = 1;
  std::string tp = "1";
  std::string order = kOrderAuto;

  template <class V>
  void visit(V& v) {
    v("pp", pp, "pipeline ranks: each holds a part of the layers");
    v("dp", dp, "data-parallel ranks: each takes batch / dp samples of every step");
    v("tp", tp,
      "tensor-parallel ranks: each holds a part of every matrix; a number, or the sizes of the "
      "axes tp0, tp1 and tp2 of their grid, as \"2,2,2\" or [2, 2, 2]",
      AlsoAsList{});
    v("order", order,
      "axes of that grid, outermost first, as \"0,1,2\" or [0, 1, 2]: ranks along the last lie "
      "next to each other; auto: the axis that carries most comes last",
      AlsoAsList{});
  }
};

// How the ranks of a tensor grid share matrices and activations.
struct TensorSection {
  TensorMethod method = TensorMethod::three_d;
  TableChoice table = TableChoice::automatic;
  bool prefetch = true;
  GridKeep keep = GridKeep::nothing;

  template <class V>
  void visit(V& v) {
    v("method", method, "how matrices are cut and what moves", kTensorMethodNames);
    v("table", table,
      "split: partial sums of logits move; gathered: the table of tokens does; auto: what moves "
      "less",
      kTableChoiceNames);
    v("prefetch", prefetch,
      "bring the weights of the next linear map while one is computed, and let the gradients of "
      "the "
      "last one's leave meanwhile");
    v("keep", keep,
      "gathered: forward keeps the inputs and weights of linear maps that it has gathered, in each "
      "microbatch under way, and backward does not gather them again; nothing: it does, and less "
      "memory is needed",
      kGridKeepNames);
  }
};

// Who computes what when, along the layers.
struct PipelineSection {
  std::string schedule = "1f1b";
  std::int64_t chunks = 1;
  std::string split = kSplitAuto;
  std::int64_t decided_microbatch = 0;  // no key: the size that goes with a chosen schedule

  bool is_automatic() const { return schedule == kScheduleAuto; }

  template <class V>
  void visit(V& v) {
    v("schedule", schedule,
      "gpipe, 1f1b, interleaved, zero_bubble, zb_v, or file:PATH (`laconic schedule` shows and "
      "compares them); auto: the order and the size of microbatches that are fastest by estimate");
    v("chunks", chunks,
      "stages of each rank; interleaved needs at least 2, zb_v exactly 2, the others 1");
    v("split", split,
      "layers of each stage, as \"2,3,3,2\" or [2, 3, 3, 2]; auto: equal work, as counted; "
      "measured: as timed before the first step",
      AlsoAsList{});
  }
};

// Several steps of each rank alone, then what they agree on.
struct LocalSection {
  std::int64_t steps = 0;
  LocalMethod method = LocalMethod::diloco;
  double outer_lr = 0;
  double outer_momentum = -1;
  std::int64_t overlap = 0;
  bool spread = false;
  std::int64_t fragment = 3;
  FragmentOrder order = FragmentOrder::strided;
  double mixing = 0.5;
  std::int64_t warmup = 48;
  std::string warmup_codec = "";
  std::int64_t refresh = 16;
  ChangeAggregate aggregate = ChangeAggregate::mean;
  double memory = 0.95;

  bool is_spread() const { return spread && method == LocalMethod::linear; }
  // Whether parts of the model may be in different steps of their rounds.
  bool has_parts() const { return is_spread() || method == LocalMethod::streaming_diloco; }

  template <class V>
  void visit(V& v) {
    v("steps", steps, "inner steps between two outer ones; 0: ranks agree after every step");
    v("method", method,
      "diloco: the mean change of a round is the gradient of an outer step; streaming_diloco: "
      "fragments of the model travel at different steps, while ranks go on; linear: all ranks "
      "share the second moment of AdamW, and follow the mean of their updates; sparse_loco: a few "
      "large elements of changes travel, in two bits",
      kLocalMethodNames);
    v("outer_lr", outer_lr,
      "all but linear: learning rate of the outer step; 0: 1, from 30 steps on 0.7 of diloco and "
      "0.4 of streaming_diloco");
    v("outer_momentum", outer_momentum,
      "both diloco: momentum of the outer Nesterov step; -1: 0 below 30 steps, 0.9 from there on");
    v("overlap", overlap,
      "linear, streaming_diloco: steps that changes may travel beside before they are taken");
    v("spread", spread,
      "linear: parts of the model, one for each step of a round, travel at different steps instead "
      "of all at its end");
    v("fragment", fragment,
      "streaming_diloco: layers of a fragment; 0: the whole model travels at once");
    v("order", order,
      "streaming_diloco: strided: every fragment has layers of every depth; sequential: "
      "neighbours",
      kFragmentOrderNames);
    v("mixing", mixing,
      "streaming_diloco: share of a rank's own parameters that stays when a fragment comes");
    v("warmup", warmup, "linear: first steps that ranks take together");
    v("warmup_codec", warmup_codec,
      "linear: of gradients in these steps, without residuals; empty: as in [dp.gradient]");
    v("refresh", refresh, "linear: most rounds between two that renew the second moment");
    v("aggregate", aggregate,
      "sparse_loco: an element's changes by the number of ranks, or of those that chose it",
      kChangeAggregateNames);
    v("memory", memory, "sparse_loco: what is left, from round to round, of what was not sent");
  }
};

// What a run may change about its messages while it runs.
struct SteeringSection {
  BypassMode bypass = BypassMode::never;
  std::int64_t after = 8;
  GuardMode guard = GuardMode::off;
  std::int64_t every = 20;
  std::int64_t shadow = 0;
  double min_cosine = 0.5;
  double max_error = 1.0;
  double max_residual = 10.0;
  std::int64_t patience = 2;

  template <class V>
  void visit(V& v) {
    v("bypass", bypass,
      "auto: after so many steps messages of a class travel raw from then on, if encoding them "
      "costs more time than it saves, as measured; the run then depends on the machine",
      kBypassModeNames);
    v("after", after, "bypass: steps that are measured before it is decided");
    v("guard", guard,
      "watch: compare what is sent with what the receiver gets, and warn; fallback: also raise the "
      "bits, or send raw",
      kGuardModeNames);
    v("every", every, "guard: steps between those that are measured");
    v("shadow", shadow,
      "steps between shadow steps, whose gradient is computed once more without any loss and "
      "compared; 0: none");
    v("min_cosine", min_cosine, "guard: least cosine of decoded and true messages of a class");
    v("max_error", max_error, "guard: largest norm of what is lost, by that of the true messages");
    v("max_residual", max_residual, "guard: largest norm of residuals, by that of the messages");
    v("patience", patience, "guard: measurements in a row that must be bad before it acts");
  }
};

}  // namespace laconic
