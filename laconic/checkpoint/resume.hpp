// checkpoint/resume.hpp — which model a run begins with: new, imported, or continued.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "laconic/checkpoint/checkpoint.hpp"
#include "laconic/config/run_config.hpp"

namespace laconic {

struct StartOptions {
  std::string resume = "none";  // "none", "auto", "best", or the folder of a checkpoint or a run
  bool follows = false;         // another rank has decided: `resume` is "none" or a folder
  int local_rank = 0;           // which GPU run.device = "cuda" means
  bool overwrite = false;       // later checkpoints in the same folder may be thrown away
};

// What of a model a rank holds: of these blocks the parts that lie at its place in a tensor grid.
struct RankPart {
  HeldBlocks blocks = {};
  GridPlace place = {};
};

// What this rank shall hold, once the model is known, and which checkpoint it goes on from, if any.
using HeldBy = std::function<RankPart(const Family& family, const std::string& checkpoint)>;

struct Start {
  Weights weights;
  TrainState state;
  std::string from;                   // checkpoint or folder of weights; empty: new
  bool is_resumed = false;            // `from` is a checkpoint that the run goes on from
  std::vector<std::string> notes;     // for people: what was passed over, what changed
  std::vector<std::string> replaced;  // old checkpoints that the user gave up; still there
};

std::string checkpoints_folder(const RunConfig& config);

// dtype and device of the run, for the rank of that number on its machine. A GPU is made the
// current one of this thread, and computes as run.deterministic and run.precision say from here on.
// Throws ConfigError when there is no such device here.
at::TensorOptions tensor_options(const RunConfig& config, int local_rank = 0);

// What a run must know of its data before it has a model.
struct DataFacts {
  std::int64_t vocabulary = 0;  // 0: unknown
  std::int64_t labels = 0;      // classes; 0: none
  std::string xxh3;             // empty: unknown
  std::uint64_t tokens = 0;
  std::uint64_t records = 0;  // documents that are records; 0: they are text
};

// Finds or makes the model; the data's vocabulary counts when model.vocabulary is 0.
// Throws ConfigError, FileError.
Start start_run(const RunConfig& config, const StartOptions& options, const DataFacts& data,
                const HeldBy& held_by = {});

// The configuration that a checkpoint was made with. Keys of other versions are passed over.
RunConfig read_checkpoint_config(const std::string& checkpoint);

// Keys in which the checkpoint's configuration differs from the run's: "pipeline.split: ...".
std::vector<std::string> changes_since(const std::string& checkpoint, const RunConfig& config);

}  // namespace laconic
