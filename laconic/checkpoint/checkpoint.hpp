// checkpoint/checkpoint.hpp — a run on disk: everything needed to go on bit for bit.
//
//   FOLDER/step-00000100/
//     config.json model.safetensors     the model, as Hugging Face reads it
//     vocab.json merges.txt ...         the tokeniser, when the data has one
//     optimiser.safetensors             "moment1.NAME", "moment2.NAME", as far as there are any
//     rank-00003.safetensors            what rank 3 alone remembers, if anything (rank_state.hpp)
//     rank-00003.pp.*                   and its ends of links (runtime/link_registry.hpp)
//     state.json                        step, data position, check sums of all files
//   FOLDER/best -> step-00000100        that with the least validation loss, if that is asked for
//
// Parameters and moments are those of the whole model, whatever part of it a
// rank held: a checkpoint does not depend on the mesh that made it.
//
// A checkpoint is written into a folder of another name, synced, and renamed:
// under its final name it is whole. Older ones are removed only after that, and later ones never.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "laconic/checkpoint/validation_state.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/update/optimiser.hpp"

namespace laconic {

// Where a run stands. All of it is also what decides the next step.
struct TrainState {
  std::int64_t step = 0;      // steps done
  std::int64_t position = 0;  // samples consumed, over all ranks
  std::int64_t tokens = 0;    // of these, where padding was cut off; 0: it never was
  std::int64_t skipped = 0;   // steps whose update was left out
  std::int64_t skipped_in_a_row = 0;
  ValidationState validation;
  OptimiserState optimiser;
};

struct CheckpointSpec {
  std::string folder;       // holds the step-... folders
  std::int64_t keep = 0;    // newest that stay; 0: all
  bool keeps_best = false;  // that of state.validation.best_step stays, too; `best` leads there
  FolderFacts facts;        // for config.json
  std::string data_xxh3;    // of the training set; empty: not known
  std::string config_toml;  // the run's configuration, kept for the reader
  std::string tokeniser_folder;  // copied along; may be empty
  std::string pipeline;  // what was decided about it (train/pipeline_plan.hpp); may be empty
  std::string steering;  // and about its messages since (steer/steering.hpp); may be empty
  std::function<void(const std::string& folder)> add_files;  // of other ranks; may be empty
};

// Parameters and moments of the whole model, wherever they are: asked for one part after the other,
// in each in ascending order of numbers, each whole or in pieces (ParameterSource).
enum class Part : std::uint8_t { value, moment1, moment2 };
struct ModelSource {
  Family family;
  Dtype dtype = Dtype::f32;
  OptimiserKind optimiser = OptimiserKind::adamw;  // says which moments there are
  std::vector<ParameterSpec> codes = {};  // parameters after those of the family: a grid's codes
  std::function<void(Part part, std::size_t p, const TakePiece& take)> tensor;
};
// The learned codes of a grid that a model has.
std::vector<ParameterSpec> codes_of(const ModelSpec& spec);
// Whether the algorithm keeps this part of parameter `p`.
bool has_part(OptimiserKind optimiser, const ModelSpec& spec, Part part, std::size_t p);
// Requires: all blocks are held here.
ModelSource source_of(const Weights& weights, const OptimiserState& optimiser,
                      OptimiserKind kind = OptimiserKind::adamw);

// Returns the folder of the new checkpoint. Throws SystemError (a full disk): what was there stays.
std::string save_checkpoint(const CheckpointSpec& spec, const ModelSource& model,
                            const TrainState& state);

// Makes FOLDER/best lead to the checkpoint of that step; to nothing, if there is none.
void point_to_best(const std::string& folder, const ValidationState& validation);
// The checkpoint that FOLDER/best leads to. Throws FileError when there is none.
std::string best_checkpoint(const std::string& folder);

// Checks every file against state.json. Throws FileError, SystemError.
void verify_checkpoint(const std::string& folder);

// The newest checkpoint under `folder` that verifies; empty when there is none. Each damaged one
// passed over adds a line to `warnings`.
std::string find_latest_checkpoint(const std::string& folder, std::vector<std::string>& warnings);

struct CheckpointInfo {
  std::int64_t step = 0;
  std::string config_toml;
  std::string data_xxh3;
  std::string pipeline;
  std::string steering;
};
CheckpointInfo read_checkpoint_info(const std::string& folder);

// Renames it to step-NNN.removing first: what carries the final name is whole even if we are
// killed.
void remove_checkpoint(const std::string& folder);

bool is_checkpoint(const std::string& folder);  // has a state.json

// Parameters and state, in place; of a part of the model only what it holds. Throws FileError when
// the dtype differs: going on in another precision is not going on. Returns the learned codes of a
// grid that it does not have, whose values are left as they are. Requires: weights of the
// checkpoint's family; an optimiser that keeps the same moments.
std::vector<std::string> load_checkpoint(const std::string& folder, Weights& weights,
                                         TrainState& state,
                                         OptimiserKind kind = OptimiserKind::adamw);

}  // namespace laconic
