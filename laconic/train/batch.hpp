// train/batch.hpp — samples of a dataset as tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "laconic/data/window.hpp"
#include "laconic/model/gpt.hpp"

namespace laconic {

// Opens PREFIX as windows of the model's context, and reads it all once: the check sum, where there
// is one, and that every token is in the vocabulary. Throws ConfigError, FileError, SystemError.
WindowedDataset open_dataset(const std::string& prefix, std::int64_t context,
                             std::int64_t vocabulary);

// These samples, on the device, without dropout.
Microbatch make_microbatch(const WindowedDataset& data, const std::vector<std::int64_t>& sample_ids,
                           at::Device device);

}  // namespace laconic
