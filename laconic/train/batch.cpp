#include "laconic/train/batch.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/data/sidecar.hpp"

namespace laconic {

WindowedDataset open_dataset(const std::string& prefix, std::int64_t context,
                             std::int64_t vocabulary) {
  auto tokens = std::make_shared<IndexedDataset>(prefix);
  if (read_sidecar(prefix)) verify_dataset(prefix);  // only we write check sums
  return {std::move(tokens), static_cast<std::uint64_t>(context), vocabulary};
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

Microbatch make_microbatch(const WindowedDataset& data, const std::vector<std::int64_t>& sample_ids,
                           at::Device device) {
  const auto samples = static_cast<std::int64_t>(sample_ids.size());
  const auto tokens = static_cast<std::int64_t>(data.window());
  const at::Tensor ids = at::empty({samples, tokens}, at::kLong);
  const at::Tensor targets = at::empty({samples, tokens}, at::kLong);
  std::vector<std::int64_t> window(data.window() + 1);
  for (std::int64_t s = 0; s < samples; ++s) {
    data.read(static_cast<std::uint64_t>(sample_ids[static_cast<std::size_t>(s)]), window);
    std::copy(window.begin(), window.end() - 1, ids.data_ptr<std::int64_t>() + s * tokens);
    std::copy(window.begin() + 1, window.end(), targets.data_ptr<std::int64_t>() + s * tokens);
  }
  return {ids.to(device), targets.to(device), {}, 0};
}

}  // namespace laconic
