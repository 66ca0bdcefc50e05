// config/training_section.hpp — what every training is told: [run], [data], [train], [evaluate],
// [checkpoint], [report].
#pragma once

#include <cstdint>
#include <string>

#include "laconic/config/device.hpp"
#include "laconic/config/option.hpp"

namespace laconic {

struct RunSection {
  std::string folder = "runs/gpt";
  std::int64_t seed = 1;
  Device device;
  RunPrecision precision = RunPrecision::float32;
  bool deterministic = true;
  std::int64_t threads = 0;
  std::int64_t memory = 0;

  template <class V>
  void visit(V& v) {
    v("folder", folder, "where checkpoints, logs and the resolved configuration go");
    v("seed", seed, "initialisation, data order and dropout all follow from it");
    v("device", device,
      "where tensors live: cpu, cuda (the GPU of this rank's number on its machine), or cuda:N");
    v("precision", precision,
      "what blocks compute in; bfloat16 keeps parameters, moments and sums of gradients in "
      "float32, "
      "tf32 shortens the factors of products on a GPU",
      kRunPrecisionNames);
    v("deterministic", deterministic,
      "a GPU computes the same bits every time; false: faster attention, resumed runs differ in "
      "last bits");
    v("threads", threads, "compute threads; 0: one per available core");
    v("memory", memory,
      "bytes that the ranks of one machine may need together, by estimate; 0: what the machine or "
      "its container has; on GPUs: of one GPU, 0: what is free there");
  }

  // The type of activations and of what travels between stages.
  Dtype compute_type() const {
    return precision == RunPrecision::bfloat16 ? Dtype::bf16 : master_type();
  }
  // The type of parameters, moments, checkpoints and sums of gradients.
  Dtype master_type() const { return precision == RunPrecision::float64 ? Dtype::f64 : Dtype::f32; }
};

struct DataSection {
  std::string train = "";
  std::string valid = "";
  bool shuffle = true;
  std::int64_t shards = 0;
  bool mask_prompts = true;

  template <class V>
  void visit(V& v) {
    v("train", train, "prefix of the prepared training set (PREFIX.bin, PREFIX.idx)");
    v("valid", valid, "prefix of the prepared validation set; empty: no evaluation");
    v("shuffle", shuffle, "a new seeded order every epoch");
    v("shards", shards,
      "parts of the data that are shuffled each by itself, an equal share of every batch from "
      "each; "
      "0: mesh.dp where links remember samples, which must then come to the same ranks again, "
      "elsewhere 1");
    v("mask_prompts", mask_prompts,
      "the loss is over completions alone, where the data has prompts and completions");
  }
};

struct TrainSection {
  std::int64_t steps = 1000;
  std::int64_t batch = 8;
  std::int64_t microbatch = 0;
  double clip = 1.0;
  NonFinite non_finite = NonFinite::stop;
  UpdateBy update = UpdateBy::step;

  template <class V>
  void visit(V& v) {
    v("steps", steps, "optimiser steps in the whole run");
    v("batch", batch, "samples per step, over all ranks");
    v("microbatch", microbatch,
      "samples per forward pass; gradients add up; 0: all samples that a rank has in a step, or 1 "
      "in a pipeline; the most that pipeline.schedule = \"auto\" may take, 0: as it likes");
    v("clip", clip, "largest global gradient norm; 0: no clipping");
    v("non_finite", non_finite,
      "when loss or gradient norm is not finite: end the run, or skip the update", kNonFiniteNames);
    v("update", update,
      "parameters change together, when all sums of the step are there (step), or block by block, "
      "while the next step is in forward (block): the same bits sooner",
      kUpdateByNames);
  }
};

struct EvaluateSection {
  std::int64_t every = 0;
  std::int64_t samples = 0;
  std::int64_t bleu_samples = 64;
  std::int64_t patience = 0;
  double min_improvement = 0;
  bool encoded = false;

  template <class V>
  void visit(V& v) {
    v("every", every, "steps between evaluations; 0: only at the end");
    v("samples", samples, "validation samples per evaluation; 0: all");
    v("bleu_samples", bleu_samples,
      "translate: the first of these, which are translated greedily for BLEU; 0: none");
    v("patience", patience,
      "evaluations in a row without improvement that end the run (early stopping); 0: never");
    v("min_improvement", min_improvement,
      "patience: by how much, at least, the validation loss must fall to count as improved");
    v("encoded", encoded,
      "what travels in evaluations is encoded as in training, and the loss is that of the model "
      "with what this loses; otherwise everything travels raw");
  }
};

struct CheckpointSection {
  std::int64_t every = 0;
  std::int64_t keep = 3;
  bool best = false;
  bool at_end = true;

  template <class V>
  void visit(V& v) {
    v("every", every, "steps between checkpoints; 0: only at the end and on interruption");
    v("keep", keep, "newest checkpoints that stay; 0: all");
    v("best", best,
      "also after each evaluation that is the best so far; that checkpoint stays, and "
      "FOLDER/checkpoints/best leads to it");
    v("at_end", at_end,
      "also when all steps are done; false: for measuring, where nobody wants it");
  }
};

struct ReportSection {
  std::int64_t every = 1;
  bool jsonl = true;
  bool tensorboard = true;
  bool trace = false;

  template <class V>
  void visit(V& v) {
    v("every", every, "steps between lines on the console and in the log");
    v("jsonl", jsonl, "write FOLDER/log.jsonl");
    v("tensorboard", tensorboard, "write FOLDER/tensorboard/");
    v("trace", trace, "write FOLDER/trace.json, for Perfetto or chrome://tracing");
  }
};

}  // namespace laconic
