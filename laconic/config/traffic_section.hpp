// config/traffic_section.hpp — what travels between ranks, and how: [pp.activation], [pp.gradient],
// [embedding.tied], [embedding.rows], [dp.gradient], [network].
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "laconic/config/mesh_section.hpp"
#include "laconic/config/option.hpp"
#include "laconic/transport/transport_kind.hpp"

namespace laconic {

// pp.*.store when references are kept in memory; anything else is a folder.
inline constexpr const char* kInRam = "ram";

// tp.*.layers and pp.*.boundaries when they are no lists.
inline constexpr const char* kAllPlaces = "all";
inline constexpr const char* kLayersHelp =
    "layers whose messages are encoded: all, \"last half\", \"first half\", or their numbers from "
    "0 "
    "on, as \"2,3\" or [2, 3]; embeddings and the head are not";
inline constexpr const char* kBoundariesHelp =
    "boundaries between stages that are encoded: all, \"last half\", \"first half\", or their "
    "numbers, as \"1,2\" or [1, 2]; number 0 is behind the first stage";

// What happens to activations on their way to the next stage.
struct PpActivationSection {
  std::string codec = "raw";
  LinkMemory memory = LinkMemory::none;
  std::string first = "half";
  Reference reference = Reference::bf16;
  std::string store = kInRam;
  std::int64_t budget = 0;
  std::int64_t device_memory = 0;
  std::int64_t hash_every = 16;
  std::string boundaries = kAllPlaces;
  CodeBegin start = CodeBegin::orthogonal;
  bool tied = false;

  template <class V>
  void visit(V& v) {
    v("codec", codec,
      "of activations, or of their changes (`laconic codec list`); auto_encoder: its maps are "
      "parameters of the model, whose boundaries are projected there");
    v("memory", memory,
      "delta: both ends remember each sample's last activations, and the change travels (AC-SGD); "
      "slot_feedback, for studies alone, as a control that should not help: what a message lost "
      "goes "
      "into the next one, which has other samples",
      kActivationMemoryNames);
    v("first", first, "delta: codec of samples that are not remembered yet");
    v("reference", reference, "delta: how they are remembered", kReferenceNames);
    v("store", store, "delta: where: ram, or a folder on a disk of each machine");
    v("budget", budget,
      "delta: bytes for one end of one boundary; samples that find no room travel as first visits; "
      "0: no limit");
    v("device_memory", device_memory,
      "delta, on a GPU: of these, bytes in its memory; the others are in pinned memory of the "
      "host, then in the folder");
    v("hash_every", hash_every, "delta: visits of a sample between comparisons of both ends");
    v("boundaries", boundaries, kBoundariesHelp, AlsoAsList{});
    v("start", start,
      "auto_encoder: what its maps begin as; orthogonal: a projection, pca: that on what the first "
      "samples have most of, noise: as published",
      kCodeBeginNames);
    v("tied", tied, "auto_encoder: one map encodes, and its transpose decodes");
  }
};

// What happens to gradients on their way to the stage before.
struct PpGradientSection {
  std::string codec = "raw";
  LinkMemory memory = LinkMemory::none;
  When when = When::always;
  bool reset = false;
  std::string first = "half";
  Reference reference = Reference::bf16;
  std::string store = kInRam;
  std::int64_t budget = 0;
  std::int64_t device_memory = 0;
  std::string boundaries = kAllPlaces;

  template <class V>
  void visit(V& v) {
    v("codec", codec, "of gradients at stage boundaries (`laconic codec list`)");
    v("memory", memory,
      "feedback: what a message lost goes into the next one (Optimus-CC's lazy error propagation); "
      "delta: as in pp.activation",
      kLinkMemoryNames);
    v("when", when,
      "which are encoded; epilogue: after the receiver's last forward; critical: those on the "
      "critical path, as estimated from measured costs; the others travel raw",
      kGradientWhenNames);
    v("reset", reset, "feedback: forget at the start of every step");
    v("first", first, "delta: codec of samples that are not remembered yet");
    v("reference", reference, "delta: how they are remembered", kReferenceNames);
    v("store", store, "delta: where: ram, or a folder on a disk of each machine");
    v("budget", budget, "delta: bytes for one end of one boundary; 0: no limit");
    v("device_memory", device_memory, "delta, on a GPU: of these, bytes in its memory");
    v("boundaries", boundaries, "as pp.activation.boundaries", AlsoAsList{});
  }
};

// The gradient of the embedding, which the first and the last stage share.
struct EmbeddingTiedSection {
  bool fused = true;
  GradientMethod method = GradientMethod::codec;
  std::string codec = "raw";
  std::int64_t rank = 32;
  std::int64_t late = 0;
  std::int64_t late_after = 50;

  template <class V>
  void visit(V& v) {
    v("fused", fused,
      "one sum over both stages and all data-parallel ranks, instead of one over each and then one "
      "over the pair; without a pipeline there is nothing to fuse");
    v("method", method,
      "codec: the sum as it is; power_sgd: low-rank factors of matrices, with error feedback",
      kTiedMethodNames);
    v("codec", codec, "of the sum between first and last stage, or of its factors");
    v("rank", rank, "power_sgd: columns of the factors");
    v("late", late,
      "1: the sum travels while the next step computes, and its update uses it; all else is on "
      "time");
    v("late_after", late_after, "late: so many first steps use their own sum");
  }
};

// What was measured before the first step, the same on all ranks; 0: not known.
struct RowRates {
  double bytes_per_second = 0;  // between any two ranks, the slowest
  double latency = 0;           // of a message, in seconds
  double seconds_per_row = 0;   // to find out whether the next step reads it
};

// Embedding tables whose rows are looked up and that have no other use.
struct EmbeddingRowsSection {
  RowsMethod method = RowsMethod::allreduce;
  RowsOptimiser optimiser = RowsOptimiser::same;
  RowsClip clip = RowsClip::all;
  RowsSplit split = RowsSplit::automatic;
  std::string codec = "raw";
  std::string gradient = "raw";
  bool early = false;
  // What "auto" has come to for each table, by name (train/row_reader.hpp), and by what rates: no
  // keys, and nothing that a run is told.
  std::optional<std::map<std::string, RowsMethod>> decided = {};
  RowRates rates = {};
  std::vector<std::string> reasons = {};  // for people

  template <class V>
  void visit(V& v) {
    v("method", method,
      "of tables whose rows are looked up and that have no other use; alltoall: each data-parallel "
      "rank holds some columns, and rows and their gradients travel, each once (EmbRace); "
      "allgather: gradients of rows go to all ranks; server: each holds some rows, and all others "
      "ask it for them; allreduce: as all other parameters; auto: for each table what takes "
      "least time",
      kRowsMethodNames);
    v("optimiser", optimiser,
      "what changes rows that travel, in steps that read them alone; same: the run's, where that "
      "is no other algorithm: sgd without momentum and decay",
      kRowsOptimiserNames);
    v("clip", clip,
      "all: train.clip is about all gradients; dense: those of rows that travel neither count in "
      "the norm nor are clipped",
      kRowsClipNames);
    v("split", split,
      "gradients of rows that the next step does not read come later; auto: where that saves more "
      "time than it costs, and unless clipping needs them all",
      kRowsSplitNames);
    v("early", early,
      "alltoall, server: rows of the next step that this one does not change leave while backward "
      "computes");
    v("codec", codec, "alltoall, server: of rows on their way to the ranks that read them");
    v("gradient", gradient,
      "alltoall, server: codec of gradients of rows on their way to who updates them");
  }
};

// What happens to gradients on their way between data-parallel ranks.
struct DpGradientSection {
  GradientMethod method = GradientMethod::codec;
  std::string codec = "raw";
  std::string down = "";
  FeedbackOf feedback = FeedbackOf::both;
  std::int64_t warmup = 0;
  AllReduceKind algorithm = AllReduceKind::automatic;
  std::int64_t rank = 16;
  double min_ratio = 1.5;
  bool by_block = false;
  bool overlap = true;
  std::int64_t late = 0;
  std::int64_t late_after = 50;
  std::string stages = "all";
  // What all ranks have come to before the first step (policy/class_policy.hpp): no key.
  std::uint64_t lane_bytes = 0;

  template <class V>
  void visit(V& v) {
    v("method", method,
      "codec: each block by itself; power_sgd: low-rank factors; compressed_adam: the first moment "
      "travels, the second is frozen after warm-up",
      kGradientMethodNames);
    v("codec", codec, "of contributions on their way to the owner (`laconic codec list`)");
    v("down", down, "codec of the sum on its way back; empty: the same");
    v("feedback", feedback, "residuals are kept of contributions (up), also of the sum (both)",
      kFeedbackOfNames);
    v("warmup", warmup, "steps that travel exactly before the method begins");
    v("algorithm", algorithm, "of the all-reduce", kAllReduceKindNames);
    v("rank", rank, "power_sgd: columns of the factors");
    v("min_ratio", min_ratio, "power_sgd: matrices that would shrink by less travel raw");
    v("by_block", by_block,
      "power_sgd: a block's factors leave by themselves, during backward, instead of all together");
    v("overlap", overlap, "gradients of a block leave while the block before is in backward");
    v("late", late,
      "1: sums travel while the next step computes, and its update uses them; 0: a step uses its "
      "own");
    v("late_after", late_after, "late: so many first steps use their own sums");
    v("stages", stages,
      "pipeline ranks whose gradients are encoded; the others' travel raw: all, the first so "
      "many "
      "(\"3\"), a fraction of them (\"0.75\"), or auto: those whose sums would end last");
  }
};

// What happens to activations between the ranks of a tensor grid, in forward.
struct TpActivationSection {
  std::string codec = "raw";
  SumForm sum = SumForm::two_step;
  bool masked = false;
  CodeBegin start = CodeBegin::orthogonal;
  bool tied = false;
  std::string layers = kAllPlaces;

  template <class V>
  void visit(V& v) {
    v("codec", codec, "of activations that are gathered, and of partial sums that are scattered");
    v("sum", sum,
      "1d: of encoded partial sums; two-step: each rank adds a part, and what it has added is "
      "encoded once more; gathered: each encodes its own once, for all others, who add it",
      kSumFormNames);
    v("masked", masked,
      "top_k, random_k: elements that were not sent have no gradient; otherwise it is that of the "
      "value, straight through");
    v("start", start,
      "auto_encoder: what its maps begin as; orthogonal: a projection, pca: that on what the first "
      "microbatch has most of, noise: as published",
      kCodeBeginNames);
    v("tied", tied, "auto_encoder: one map encodes, and its transpose decodes");
    v("layers", layers, kLayersHelp, AlsoAsList{});
  }
};

// What happens to their gradients, in backward.
struct TpGradientSection {
  std::string codec = "raw";
  SumForm sum = SumForm::two_step;
  std::string layers = kAllPlaces;

  template <class V>
  void visit(V& v) {
    v("codec", codec, "of activations' gradients, gathered and scattered");
    v("sum", sum, "1d: of encoded partial sums, as tp.activation.sum", kSumFormNames);
    v("layers", layers, kLayersHelp, AlsoAsList{});
  }
};

// What happens to weights that are gathered, and to their gradients.
struct TpWeightSection {
  std::string codec = "raw";
  std::string gradient = "raw";
  bool feedback = true;
  std::string layers = kAllPlaces;

  template <class V>
  void visit(V& v) {
    v("codec", codec, "of weights that are gathered; forward and backward see the same");
    v("gradient", gradient, "codec of their gradients on the way to whoever holds them");
    v("feedback", feedback, "what a gradient lost goes into the next one");
    v("layers", layers, kLayersHelp, AlsoAsList{});
  }
};

// How ranks reach each other.
struct NetworkSection {
  TransportKind transport = TransportKind::automatic;
  std::string interface = "";
  std::int64_t port = 0;
  double deadline = 60;
  std::int64_t segment = 256 << 10;
  bool preflight = true;
  std::string shape = "";
  std::string faults = "";

  template <class V>
  void visit(V& v) {
    v("transport", transport, "what carries messages; auto: gloo, or mpi under mpirun without gloo",
      kTransportKindNames);
    v("interface", interface,
      "network interface or address; empty: the one on the route to the rendezvous host");
    v("port", port, "of the rendezvous, for ranks that --ranks starts; 0: any free one");
    v("deadline", deadline, "seconds that any wait for another rank may take");
    v("segment", segment, "bytes that leave before a more urgent message may overtake");
    v("preflight", preflight, "measure every pair of ranks before the first step");
    v("shape", shape, "emulate a slow network, as \"rate=100mbit,latency=5ms\"; empty: as it is");
    v("faults", faults, "for tests: make the network fail, as \"drop:rank=1,at=17\"");
  }
};

}  // namespace laconic
