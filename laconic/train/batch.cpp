#include "laconic/train/batch.hpp"

#include <ATen/ops/empty.h>

#include <memory>
#include <utility>

#include "laconic/data/sidecar.hpp"

namespace laconic {

WindowedDataset open_dataset(const std::string& prefix, std::int64_t context,
                             std::int64_t vocabulary) {
  auto tokens = std::make_shared<IndexedDataset>(prefix);
  if (read_sidecar(prefix)) verify_dataset(prefix);  // only we write check sums
  return {std::move(tokens), static_cast<std::uint64_t>(context), vocabulary};
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
