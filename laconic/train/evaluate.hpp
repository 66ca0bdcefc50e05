// train/evaluate.hpp — how well a model predicts a dataset.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "laconic/data/window.hpp"
#include "laconic/model/gpt.hpp"
#include "laconic/train/world.hpp"

namespace laconic {

struct Evaluation {
  std::int64_t samples = 0;
  std::int64_t tokens = 0;              // predicted
  double loss = 0;                      // mean negative log likelihood per token, natural logarithm
  std::optional<double> bits_per_byte;  // when the bytes behind the tokens are known
  double seconds = 0;

  double perplexity() const;
};

// How many bytes of text each token stands for; an end of document stands for none. Empty when the
// dataset has no tokeniser beside it.
std::vector<std::int32_t> token_bytes(const std::string& prefix);

// The first `samples` samples (0: all), in order, `batch` at a time; no dropout, no gradients. The
// ranks of the world take batches in turn and add up in the order of the batches: any number of
// them gives the same result. Collective.
Evaluation evaluate(const Gpt& gpt, const WindowedDataset& data, std::int64_t samples,
                    std::int64_t batch, const std::vector<std::int32_t>& bytes_of_token,
                    World& world);

}  // namespace laconic
