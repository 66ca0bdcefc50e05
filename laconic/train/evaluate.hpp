// train/evaluate.hpp — how well a model predicts a dataset.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "laconic/data/task.hpp"
#include "laconic/model/model.hpp"
#include "laconic/train/answers.hpp"
#include "laconic/world/world.hpp"

namespace laconic {

struct Evaluation {
  std::int64_t samples = 0;
  std::int64_t tokens = 0;              // scored
  double loss = 0;                      // mean negative log likelihood per token, natural logarithm
  std::optional<double> bits_per_byte;  // when the bytes behind the tokens are known
  bool has_perplexity = true;           // the loss is about tokens
  Metrics metrics;                      // of tasks that have answers
  double seconds = 0;

  double perplexity() const;
};

// How many bytes of text each token stands for; an end of document stands for none. Empty when the
// dataset has no tokeniser beside it, or one that does not keep all bytes of a text.
std::vector<std::int32_t> token_bytes(const std::string& prefix);

// What evaluates: the mean loss of a microbatch, `number` counting them, and what the last block
// predicts where the pass asks for it; no rank but that with the last stage knows either. Where the
// windows of the dataset overlap, it gets the targets of the last positions alone (see
// forward_loss).
using ForwardLoss =
    std::function<double(const Batch& batch, std::uint64_t number, const Pass& pass)>;

// The first `samples` samples (0: all), in order, `batch` at a time; no dropout, no gradients. The
// replicas of the model take batches in turn, and what they found is added up in the order of the
// batches: any mesh gives the same result. Where windows overlap, every token is scored once, in
// the first window that holds it: all of the first window, and the last `stride` of the others.
// Collective.
struct EvaluationSpec {
  // Before each round, in which every replica takes a batch: gets the batches of all, some of which
  // may have none at the end. Empty: nobody asks.
  using BeforeRound = std::function<void(const std::vector<Batch>& by_replica)>;

  Task task;
  std::int64_t samples = 0;
  std::int64_t batch = 8;
  at::Device device = at::kCPU;
  const std::vector<std::int32_t>& bytes_of_token;
  BeforeRound before_round = {};
};
Evaluation evaluate(const ForwardLoss& loss, const Dataset& data, const EvaluationSpec& spec,
                    World& world);

}  // namespace laconic
