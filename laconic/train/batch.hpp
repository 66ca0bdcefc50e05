// train/batch.hpp — samples of a dataset as tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "laconic/config/run_config.hpp"
#include "laconic/data/dataset.hpp"
#include "laconic/data/sampler.hpp"
#include "laconic/data/task.hpp"
#include "laconic/model/model.hpp"

namespace laconic {

// The order in which a run at this position (of samples, since its start) takes them. Throws
// ConfigError when its shards do not go with the data, or with where it stands.
SampleOrder sample_order(const RunConfig& config, std::uint64_t samples, std::int64_t position);

// Keys of dropout at this step (model/model.hpp), which model.dropout_by_sample leaves out.
std::vector<Key> dropout_keys(const RunConfig& config, std::int64_t step,
                              const std::vector<std::int64_t>& sample_ids);

// How the configuration's samples are cut: what open_dataset() asks for.
SampleKind sample_kind_of(const RunConfig& config);

// What the configuration asks of these samples. Requires: opened with sample_kind_of(config).
// Throws ConfigError, FileError where words cannot be told.
Task task_of(const RunConfig& config, const Dataset& data);
// The same without data: good for fields_of() and the like, not for reading samples.
Task task_of(const RunConfig& config);

// Classes of the data that the model cannot tell apart, or that it has no number for. `prefix` is
// for messages.
Problems check_labels(const Family& family, const Dataset& data, const std::string& prefix);
// Names of classes that two datasets do not have in common, or not in the same order.
Problems compare_labels(const Dataset& a, const Dataset& b, const std::string& prefix_a,
                        const std::string& prefix_b);

// Tokens of each sample of a microbatch as it is computed, padding included: those of a source
// and of a target in translation, which are the same elsewhere.
struct PaddedTokens {
  std::int64_t source = 0;
  std::int64_t target = 0;
  auto operator<=>(const PaddedTokens&) const = default;
};
// What make_batch() pads samples to that have so many. Only where padding is cut off do counts
// matter.
PaddedTokens padded_tokens(const Task& task, const Dataset& data,
                           const std::vector<SampleCount>& counts);

// These samples as the task sees them, on the device. With pads_to_longest(task) the fields that
// are padded end where the longest of these samples does, at a multiple of 8 tokens or at the
// context.
Batch make_batch(const Task& task, const Dataset& data, const std::vector<SampleAt>& samples,
                 at::Device device);
// Their first epoch.
Batch make_batch(const Task& task, const Dataset& data, const std::vector<std::int64_t>& sample_ids,
                 at::Device device);

}  // namespace laconic
