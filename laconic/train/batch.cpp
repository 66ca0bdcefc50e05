#include "laconic/train/batch.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/data/sidecar.hpp"

namespace laconic {

WindowedDataset open_dataset(const std::string& prefix, std::int64_t context,
                             std::int64_t vocabulary, std::int64_t stride) {
  auto tokens = std::make_shared<IndexedDataset>(prefix);
  const std::optional<Sidecar> sidecar = read_sidecar(prefix);
  if (sidecar) verify_dataset(prefix);  // only we write check sums
  return {std::move(tokens), static_cast<std::uint64_t>(context), vocabulary,
          static_cast<std::uint64_t>(stride), sidecar && sidecar->prompts > 0};
}

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

Task task_of(const RunConfig& config, bool has_prompts) {
  if (has_prompts && config.data.mask_prompts) return Completion{};
  return Causal{};
}

Batch make_batch(const Task& task, const WindowedDataset& data,
                 const std::vector<std::int64_t>& sample_ids, at::Device device) {
  const std::vector<FieldSpec> fields = fields_of(task, static_cast<std::int64_t>(data.window()));
  std::vector<at::Tensor> tensors;
  for (const FieldSpec& field : fields) {
    std::vector<std::int64_t> sizes = {static_cast<std::int64_t>(sample_ids.size())};
    sizes.insert(sizes.end(), field.per_sample.begin(), field.per_sample.end());
    tensors.push_back(at::empty(sizes, at::kLong));
  }
  for (std::size_t s = 0; s < sample_ids.size(); ++s) {
    std::vector<std::span<std::int64_t>> rows;
    for (const at::Tensor& tensor : tensors) {
      const auto elements = static_cast<std::size_t>(tensor.numel()) / sample_ids.size();
      rows.emplace_back(tensor.data_ptr<std::int64_t>() + s * elements, elements);
    }
    read_sample(task, data, static_cast<std::uint64_t>(sample_ids[s]), rows);
  }
  Batch batch;
  for (std::size_t f = 0; f < fields.size(); ++f) batch.add(fields[f].name, tensors[f].to(device));
  return batch;
}

}  // namespace laconic
