#include "laconic/train/evaluate.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "laconic/base/clock.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/train/batch.hpp"

namespace laconic {

double Evaluation::perplexity() const {
  return std::exp(loss);
}

std::vector<std::int32_t> token_bytes(const std::string& prefix) {
  const std::string folder = tokeniser_folder_of(prefix);
  if (!std::filesystem::exists(folder)) return {};
  const Tokeniser tokeniser = load_tokeniser(folder);
  std::vector<std::int32_t> bytes;
  for (std::int32_t id = 0; id < tokeniser.vocabulary_size(); ++id) {
    const bool is_text = id != tokeniser.end_of_document();
    bytes.push_back(is_text ? static_cast<std::int32_t>(tokeniser.decode(std::span(&id, 1)).size())
                            : 0);
  }
  return bytes;
}

namespace {

// Bytes of text behind the targets; -1 when a token is beyond the table.
std::int64_t count_bytes(const at::Tensor& targets,
                         const std::vector<std::int32_t>& bytes_of_token) {
  const at::Tensor host = targets.to(at::kCPU).contiguous();
  const auto* ids = host.data_ptr<std::int64_t>();
  std::int64_t bytes = 0;
  for (std::int64_t i = 0; i < host.numel(); ++i) {
    if (ids[i] >= static_cast<std::int64_t>(bytes_of_token.size())) return -1;
    bytes += bytes_of_token[static_cast<std::size_t>(ids[i])];
  }
  return bytes;
}

}  // namespace

Evaluation evaluate(const Gpt& gpt, const WindowedDataset& data, std::int64_t samples,
                    std::int64_t batch, const std::vector<std::int32_t>& bytes_of_token) {
  const Stopwatch watch;
  Evaluation result;
  const auto available = static_cast<std::int64_t>(data.samples());
  result.samples = samples > 0 ? std::min(samples, available) : available;
  const auto window = static_cast<std::int64_t>(data.window());
  double nats = 0;
  std::int64_t bytes = 0;
  for (std::int64_t first = 0; first < result.samples; first += batch) {
    std::vector<std::int64_t> ids;
    for (std::int64_t s = first; s < std::min(first + batch, result.samples); ++s) ids.push_back(s);
    const Microbatch microbatch = make_microbatch(data, ids, gpt.parameters.front().value.device());
    nats += forward_loss(gpt, microbatch) * static_cast<double>(microbatch.targets.numel());
    if (!bytes_of_token.empty() && bytes >= 0) {
      const std::int64_t more = count_bytes(microbatch.targets, bytes_of_token);
      bytes = more < 0 ? -1 : bytes + more;
    }
  }
  result.tokens = result.samples * window;
  result.loss = nats / static_cast<double>(result.tokens);
  if (bytes > 0) result.bits_per_byte = nats / std::numbers::ln2 / static_cast<double>(bytes);
  result.seconds = watch.seconds();
  return result;
}

}  // namespace laconic
