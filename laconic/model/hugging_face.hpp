// model/hugging_face.hpp — GPT-2 folders as Hugging Face writes and reads them.
//
// Reading takes config.json and model.safetensors, one file or shards with an
// index, with or without the "transformer." prefix on names, in any float
// type. What would compute something else than our model is refused: another
// activation, an untied head, a missing or misshapen tensor. All reasons come
// at once.
//
// Parameters already carry Hugging Face's names and layouts (gpt.hpp), so
// nothing is renamed or transposed on the way out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "laconic/file/safetensors.hpp"
#include "laconic/model/gpt.hpp"

namespace laconic {

// What config.json says. Throws FileError or ConfigError.
GptShape read_gpt_shape(const std::string& folder);

// Weights of `folder` into `gpt`, converted to its dtype. Throws FileError, ConfigError.
// Requires: gpt has the folder's shape.
void read_gpt_weights(const std::string& folder, Gpt& gpt);

// Shape and weights.
Gpt read_gpt(const std::string& folder, const at::TensorOptions& like);

// What config.json tells beside the shape.
struct GptFolderFacts {
  double dropout = 0;
  std::int64_t end_of_text = -1;  // token id; -1: not said
};
GptFolderFacts read_gpt_facts(const std::string& folder);

// config.json of this shape.
std::string gpt_config_json(const GptShape& shape, const GptFolderFacts& facts, Dtype dtype);

struct ExportOptions {
  Dtype dtype = Dtype::f32;           // f64, f32, f16 or bf16
  std::uint64_t max_shard_bytes = 0;  // 0: one file
  GptFolderFacts facts = {};
};

// Gives parameter number `p`; asked in ascending order, once for each.
using ParameterSource = std::function<at::Tensor(std::size_t p)>;

// Writes config.json and the weights, one at a time.
// Requires: `folder` exists and holds no weights; a stale file would be read before the new ones.
void write_gpt(const std::string& folder, const GptShape& shape, const ParameterSource& source,
               const ExportOptions& options);
// The same of a whole model.
void write_gpt(const std::string& folder, const Gpt& gpt, const ExportOptions& options);

}  // namespace laconic
