// model/hugging_face.hpp — folders of models as Hugging Face writes and reads them.
//
// Reading takes config.json and model.safetensors, one file or shards with an
// index, with or without a prefix on names ("transformer."), in any float type.
// What would compute something else than our model is refused: another
// activation, a missing or misshapen tensor. All reasons come
// at once.
//
// Parameters already carry Hugging Face's names and layouts (architecture/), so
// nothing is renamed or transposed on the way out. A model with projected boundaries computes
// something that nobody else does: its config.json has a model_type of its own, which others
// refuse.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "laconic/file/safetensors.hpp"
#include "laconic/model/weights.hpp"

namespace laconic {

// What config.json says. Throws FileError or ConfigError.
Family read_family(const std::string& folder);

// Whether a folder must have the head that is asked for. Exchangeable: what it lacks is left alone.
// What it has of another head is passed over.
enum class HeadPolicy : std::uint8_t { same, exchangeable };

// Weights of `folder` into `weights`, converted to its dtype. Returns the parameters that were left
// alone: of an exchangeable head, and of projected boundaries where the folder has none. Throws
// FileError, ConfigError.
// Learned codes of a grid are in no folder, and left as they are. Requires: they are of the
// folder's family.
std::vector<std::string> read_weights(const std::string& folder, Weights& weights,
                                      HeadPolicy policy = HeadPolicy::same);

// Family and weights, of which a rank at `place` reads and holds its part.
Weights read_model(const std::string& folder, const at::TensorOptions& like,
                   const GridPlace& place = {});

// What config.json tells beside the family.
struct FolderFacts {
  double dropout = 0;
  std::int64_t end_of_text = -1;  // token id; -1: not said
  std::int64_t begin_of_text = -1;
  std::vector<std::string> label_names = {};  // of classes
};
FolderFacts read_folder_facts(const std::string& folder);

// config.json of this family.
std::string config_json(const Family& family, const FolderFacts& facts, Dtype dtype);

struct ExportOptions {
  Dtype dtype = Dtype::f32;           // f64, f32, f16 or bf16
  std::uint64_t max_shard_bytes = 0;  // 0: one file
  FolderFacts facts = {};
};

// Gives parameter number `p`, whole or in pieces of some rows after the other, so that nobody needs
// room for all of a large table; asked in ascending order, once for each.
using TakePiece = std::function<void(const at::Tensor& piece)>;
using ParameterSource = std::function<void(std::size_t p, const TakePiece& take)>;

// Writes config.json and the weights, one at a time.
// Requires: `folder` exists and holds no weights; a stale file would be read before the new ones.
void write_model(const std::string& folder, const Family& family, const ParameterSource& source,
                 const ExportOptions& options);
// The same. Requires: all blocks are held.
void write_model(const std::string& folder, const Weights& weights, const ExportOptions& options);

}  // namespace laconic
