#include "laconic/train/batch.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/data/words.hpp"

namespace laconic {

SampleOrder sample_order(const RunConfig& config, std::uint64_t samples, std::int64_t position) {
  const SampleOrder order{static_cast<std::uint64_t>(config.run.seed), samples, config.data.shuffle,
                          static_cast<std::uint64_t>(config.shards()),
                          static_cast<std::uint64_t>(config.train.batch)};
  Problems problems = check(order);
  // Otherwise the batches from here on would not begin where the shards' shares do.
  if (config.shards() > 1 && position % config.train.batch != 0)
    problems.push_back(
        {"train.batch",
         fmt::format("the run stands at sample {}, which is no whole number of batches of {}: with "
                     "data.shards = {} the batch cannot change so",
                     position, config.train.batch, config.shards())});
  refuse(problems);
  return order;
}

std::vector<Key> dropout_keys(const RunConfig& config, std::int64_t step,
                              const std::vector<std::int64_t>& sample_ids) {
  const auto seed = static_cast<std::uint64_t>(config.run.seed);
  return config.model.dropout_by_sample ? dropout_keys(seed, std::nullopt, sample_ids)
                                        : dropout_keys(seed, step, sample_ids);
}

SampleKind sample_kind_of(const RunConfig& config) {
  return {config.task.kind, config.task.next_sentence};
}

namespace {

Task task_with(const RunConfig& config, const TokenSet& set, bool has_prompts) {
  const TaskSection& task = config.task;
  const bool is_short = task.pad == Padding::longest;
  switch (task.kind) {
    case TaskKind::causal: break;
    case TaskKind::masked:
      return Masked{.special = set.special,
                    .vocabulary = set.vocabulary,
                    .seed = static_cast<std::uint64_t>(config.run.seed),
                    .share = task.mask_share,
                    .by_sample = task.masks == MaskDraws::sample,
                    .has_next_sentence = task.next_sentence,
                    .pads_to_longest = is_short};
    case TaskKind::classify: return Classify{set.special, is_short};
    case TaskKind::regress: return Regress{set.special, is_short};
    case TaskKind::span: return AnswerSpan{set.special, is_short};
    case TaskKind::translate: return Translate{set.special, is_short};
  }
  if (has_prompts && config.data.mask_prompts) return Completion{};
  return Causal{};
}

}  // namespace

Task task_of(const RunConfig& config, const Dataset& data) {
  Task task = task_with(config, set_in(data), has_prompts(data));
  if (auto* masked = std::get_if<Masked>(&task); masked && config.task.whole_words)
    masked->continues = std::make_shared<const std::vector<bool>>(
        continuing_tokens(tokeniser_folder_of(tokens_in(data).prefix())));
  return task;
}

Task task_of(const RunConfig& config) {
  return task_with(config, {}, false);
}

namespace {

constexpr std::int64_t kTokenMultiple = 8;

// What a field is cut to whose longest sample has so many elements.
std::int64_t padded_size(std::int64_t longest, std::int64_t most) {
  return std::min((longest + kTokenMultiple - 1) / kTokenMultiple * kTokenMultiple, most);
}

const std::vector<std::string>& labels_in(const Dataset& data) {
  static const std::vector<std::string> none;
  const auto* records = std::get_if<RecordDataset>(&data);
  return records != nullptr ? records->info().label_names : none;
}

}  // namespace

Problems check_labels(const Family& family, const Dataset& data, const std::string& prefix) {
  const auto* bert = std::get_if<BertShape>(&family);
  const auto found = static_cast<std::int64_t>(labels_in(data).size());
  if (bert == nullptr || bert->head != BertHead::classify || found <= bert->labels) return {};
  return {{prefix, fmt::format("has {} classes ({}), and the model tells {} apart", found,
                               fmt::join(labels_in(data), ", "), bert->labels)}};
}

Problems compare_labels(const Dataset& a, const Dataset& b, const std::string& prefix_a,
                        const std::string& prefix_b) {
  if (labels_in(a) == labels_in(b)) return {};
  return {
      {prefix_b,
       fmt::format("has the classes {}, and {} has {}: prepare both together (--validation), or "
                   "with the same --labels",
                   fmt::join(labels_in(b), ", "), prefix_a, fmt::join(labels_in(a), ", "))}};
}

PaddedTokens padded_tokens(const Task& task, const Dataset& data,
                           const std::vector<SampleCount>& counts) {
  const std::int64_t tokens = tokens_per_sample(task, data);
  if (!pads_to_longest(task)) return {tokens, tokens};
  const std::vector<FieldSpec> fields = fields_of(task, tokens);
  const auto ids =
      static_cast<std::size_t>(std::ranges::find(fields, "ids", &FieldSpec::name) - fields.begin());
  PaddedTokens longest;
  for (const SampleCount& count : counts) {
    longest.source = std::max(longest.source, count.elements[0]);
    longest.target = std::max(longest.target, count.elements[ids]);
  }
  return {padded_size(longest.source, tokens), padded_size(longest.target, tokens)};
}

Batch make_batch(const Task& task, const Dataset& data, const std::vector<SampleAt>& samples,
                 at::Device device) {
  const std::vector<FieldSpec> fields = fields_of(task, tokens_per_sample(task, data));
  std::vector<at::Tensor> tensors;
  for (const FieldSpec& field : fields) {
    std::vector<std::int64_t> sizes = {static_cast<std::int64_t>(samples.size())};
    sizes.insert(sizes.end(), field.per_sample.begin(), field.per_sample.end());
    tensors.push_back(at::empty(sizes, at::kLong));
  }
  std::vector<std::int64_t> longest(fields.size(), 0);
  for (std::size_t s = 0; s < samples.size(); ++s) {
    std::vector<std::span<std::int64_t>> rows;
    for (const at::Tensor& tensor : tensors) {
      const auto elements = static_cast<std::size_t>(tensor.numel()) / samples.size();
      rows.emplace_back(tensor.data_ptr<std::int64_t>() + s * elements, elements);
    }
    read_sample(task, data, samples[s], rows);
    if (pads_to_longest(task))
      for (std::size_t f = 0; f < fields.size(); ++f)
        longest[f] = std::max(longest[f], used_elements(task, f, rows));
  }
  Batch batch;
  for (std::size_t f = 0; f < fields.size(); ++f) {
    at::Tensor field = tensors[f];
    if (fields[f].is_real) field = field.view(at::kDouble);
    if (pads_to_longest(task))
      field = field.narrow(1, 0, padded_size(longest[f], field.size(1))).contiguous();
    // Pinned memory, so that the copy need not be waited for, nor the work before it.
    batch.add(fields[f].name, device.is_cuda() ? field.pin_memory().to(device, field.scalar_type(),
                                                                       /*non_blocking=*/true)
                                               : field.to(device));
  }
  return batch;
}

Batch make_batch(const Task& task, const Dataset& data, const std::vector<std::int64_t>& sample_ids,
                 at::Device device) {
  std::vector<SampleAt> samples;
  for (const std::int64_t id : sample_ids) samples.push_back({static_cast<std::uint64_t>(id), 0});
  return make_batch(task, data, samples, device);
}

}  // namespace laconic
