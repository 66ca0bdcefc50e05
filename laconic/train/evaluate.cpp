#include "laconic/train/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/target.hpp"
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
  if (!tokeniser.is_lossless()) return {};
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
    if (ids[i] == kNoTarget) continue;
    if (ids[i] >= static_cast<std::int64_t>(bytes_of_token.size())) return -1;
    bytes += bytes_of_token[static_cast<std::size_t>(ids[i])];
  }
  return bytes;
}

// Whether the loss is about text as a whole, so that bits per byte mean something.
bool is_text(const Task& task) {
  return std::holds_alternative<Causal>(task) || std::holds_alternative<Completion>(task);
}

// What one batch adds.
struct BatchSum {
  double nats = 0;
  std::int64_t bytes = 0;  // -1: not known
};

// Samples [first, end), of which the last `scored` tokens each count; 0: all.
struct BatchRange {
  std::int64_t first = 0;
  std::int64_t end = 0;
  std::int64_t scored = 0;
};

// All batches, in order. Only the first window may count for more than the others do; it is then a
// batch of its own.
std::vector<BatchRange> list_batches(const Dataset& data, std::int64_t samples,
                                     std::int64_t batch) {
  const auto* windows = std::get_if<WindowedDataset>(&data);
  const bool overlaps = windows != nullptr && windows->stride() < windows->window();
  const auto scored = overlaps ? static_cast<std::int64_t>(windows->stride()) : 0;
  std::vector<BatchRange> batches;
  std::int64_t first = 0;
  if (overlaps) {
    batches.push_back({0, 1, 0});
    first = 1;
  }
  for (; first < samples; first += batch)
    batches.push_back({first, std::min(first + batch, samples), scored});
  return batches;
}

Batch read_batch(const Dataset& data, const EvaluationSpec& spec, const BatchRange& range) {
  std::vector<std::int64_t> ids;
  for (std::int64_t s = range.first; s < range.end; ++s) ids.push_back(s);
  const Batch whole = make_batch(spec.task, data, ids, spec.device);
  if (range.scored == 0) return whole;
  const std::int64_t window = tokens_per_sample(spec.task, data);
  Batch batch;
  for (const FieldSpec& field : fields_of(spec.task, window))
    batch.add(field.name,
              field.name == predicted_field(spec.task)
                  ? whole[field.name].narrow(1, window - range.scored, range.scored).contiguous()
                  : whole[field.name]);
  return batch;
}

// What a rank has found, batch by batch.
struct Findings {
  std::vector<BatchSum> sums;
  std::vector<std::vector<double>> answers;  // where the last stage is; elsewhere each is empty
};

void evaluate_batch(const ForwardLoss& loss, const Dataset& data, const EvaluationSpec& spec,
                    const BatchRange& range, Findings& findings) {
  const Batch batch = read_batch(data, spec, range);
  const at::Tensor& predicted = batch[predicted_field(spec.task)];
  const std::vector<std::int32_t>& table = spec.bytes_of_token;
  Predictions predictions;
  // Whether a sentence follows is left out of the loss: it is not about tokens.
  Pass pass{.second_term = 0};
  if (numbers_per_answer(spec.task) > 0) {
    pass.predictions = &predictions.first;
    pass.second_predictions = &predictions.second;
  }
  const double mean = loss(batch, findings.sums.size(), pass);
  findings.sums.push_back(
      {.nats = mean * static_cast<double>(predicted.numel()),
       .bytes = table.empty() || !is_text(spec.task) ? -1 : count_bytes(predicted, table)});
  findings.answers.push_back(predictions.first.defined()
                                 ? answers_from(spec.task, batch, predictions)
                                 : std::vector<double>());
}

// Sums, then, where the task has answers, for each batch their number and these.
Bytes packed(const Findings& findings, bool has_answers) {
  std::vector<double> numbers;
  for (const std::vector<double>& answers : findings.answers) {
    if (!has_answers) break;
    numbers.push_back(static_cast<double>(answers.size()));
    numbers.insert(numbers.end(), answers.begin(), answers.end());
  }
  const ByteView sums = as_bytes(std::span<const BatchSum>(findings.sums));
  const ByteView rest = as_bytes(std::span<const double>(numbers));
  Bytes bytes(sums.begin(), sums.end());
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  return bytes;
}

// Adds what another rank of the same replica has found. Requires: as many batches.
void add_packed(const Bytes& bytes, std::size_t batches, bool has_answers, Findings& replica) {
  replica.sums.resize(batches);
  replica.answers.resize(batches);
  for (std::size_t i = 0; i < batches; ++i) {
    const auto found = get<BatchSum>(bytes, i * sizeof(BatchSum));
    replica.sums[i] = {.nats = replica.sums[i].nats + found.nats, .bytes = found.bytes};
  }
  std::size_t at = batches * sizeof(BatchSum);
  const auto next = [&] {
    const auto number = get<double>(bytes, at);
    at += sizeof(double);
    return number;
  };
  for (std::size_t i = 0; i < batches && has_answers; ++i)
    for (auto left = static_cast<std::size_t>(next()); left > 0; --left)
      replica.answers[i].push_back(next());
}

// What all replicas found, in the order of the batches: replica d has made batches d, d + dp, ...
// The rank with the last stage knows the loss, and its others say 0.
Findings in_order(World& world, const Findings& mine, std::size_t batches, bool has_answers) {
  const std::vector<Bytes> all = world.gather(packed(mine, has_answers));
  const auto dp = static_cast<std::size_t>(world.mesh().dp);
  std::vector<Findings> replicas(dp);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto d = static_cast<std::size_t>(coord_of(world.mesh(), static_cast<Rank>(r)).dp);
    add_packed(all[r], (batches + dp - 1 - d) / dp, has_answers, replicas[d]);
  }
  Findings ordered;
  for (std::size_t b = 0; b < batches; ++b) {
    ordered.sums.push_back(replicas[b % dp].sums[b / dp]);
    ordered.answers.push_back(std::move(replicas[b % dp].answers[b / dp]));
  }
  return ordered;
}

}  // namespace

Evaluation evaluate(const ForwardLoss& loss, const Dataset& data, const EvaluationSpec& spec,
                    World& world) {
  const Stopwatch watch;
  Evaluation result;
  const auto available = static_cast<std::int64_t>(samples_in(data));
  result.samples = spec.samples > 0 ? std::min(spec.samples, available) : available;
  const std::vector<BatchRange> batches = list_batches(data, result.samples, spec.batch);
  const auto replicas = static_cast<std::size_t>(world.mesh().dp);
  Findings mine;
  for (std::size_t first = 0; first < batches.size(); first += replicas) {
    if (spec.before_round) {
      std::vector<Batch> round;
      for (std::size_t b = first; b < first + replicas; ++b)
        round.push_back(b < batches.size() ? read_batch(data, spec, batches[b]) : Batch());
      spec.before_round(round);
    }
    const std::size_t b = first + static_cast<std::size_t>(world.dp_member());
    if (b < batches.size()) evaluate_batch(loss, data, spec, batches[b], mine);
  }
  const Findings all = in_order(world, mine, batches.size(), numbers_per_answer(spec.task) > 0);
  double nats = 0;
  std::int64_t bytes = 0;
  for (const BatchSum& sum : all.sums) {
    nats += sum.nats;
    bytes = bytes < 0 || sum.bytes < 0 ? -1 : bytes + sum.bytes;
  }
  const std::int64_t tokens = tokens_per_sample(spec.task, data);
  for (const BatchRange& b : batches)
    for (std::int64_t s = b.first; s < b.end; ++s)
      result.tokens += count_targets(spec.task, data, {static_cast<std::uint64_t>(s)},
                                     b.scored > 0 ? b.scored : tokens);
  if (result.tokens == 0)
    throw ConfigError(
        fmt::format("none of the {} samples of {} that are evaluated has a target (a token of a "
                    "completion, a hidden token, an answer): take more of them",
                    result.samples, tokens_in(data).prefix()));
  result.loss = nats / static_cast<double>(result.tokens);
  if (bytes > 0) result.bits_per_byte = nats / std::numbers::ln2 / static_cast<double>(bytes);
  std::vector<double> answers;
  for (const std::vector<double>& some : all.answers)
    answers.insert(answers.end(), some.begin(), some.end());
  result.has_perplexity = rows_per_sample(spec.task, tokens) > 1;
  result.metrics = measure(spec.task, data, answers, result.tokens);
  result.seconds = watch.seconds();
  return result;
}

}  // namespace laconic
