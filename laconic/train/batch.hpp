// train/batch.hpp — samples of a dataset as tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/data/sampler.hpp"
#include "laconic/data/task.hpp"
#include "laconic/data/window.hpp"
#include "laconic/model/model.hpp"

namespace laconic {

// Opens PREFIX as windows of the model's context, `stride` tokens apart (0: as far as they are
// long), and reads it all once: the check sum, where there is one, and that every token is in the
// vocabulary. Throws ConfigError, FileError, SystemError.
WindowedDataset open_dataset(const std::string& prefix, std::int64_t context,
                             std::int64_t vocabulary, std::int64_t stride = 0);

// The order in which a run at this position (of samples, since its start) takes them. Throws
// ConfigError when its shards do not go with the data, or with where it stands.
SampleOrder sample_order(const RunConfig& config, std::uint64_t samples, std::int64_t position);

// Keys of dropout at this step (model/model.hpp), which model.dropout_by_sample leaves out.
std::vector<Key> dropout_keys(const RunConfig& config, std::int64_t step,
                              const std::vector<std::int64_t>& sample_ids);

// What the configuration asks of samples. `has_prompts` says whether the data tells prompts and
// completions apart.
Task task_of(const RunConfig& config, bool has_prompts = false);

// These samples as the task sees them, on the device.
Batch make_batch(const Task& task, const WindowedDataset& data,
                 const std::vector<std::int64_t>& sample_ids, at::Device device);

}  // namespace laconic
