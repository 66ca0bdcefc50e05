// cli/arguments.hpp — the command line as a value.
//
// Front and worker parse the same words with the same code: the front to
// refuse what is wrong before anything heavy loads, the worker to act. No
// libtorch here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "laconic/cli/codec_command.hpp"
#include "laconic/cli/compare_command.hpp"
#include "laconic/cli/config_file.hpp"
#include "laconic/cli/lab_command.hpp"
#include "laconic/cli/lab_report_command.hpp"
#include "laconic/cli/layout_command.hpp"
#include "laconic/cli/plan_command.hpp"
#include "laconic/cli/schedule_command.hpp"
#include "laconic/cli/simulate_command.hpp"
#include "laconic/cli/study_command.hpp"
#include "laconic/cli/verb_tree.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/data/prepare.hpp"
#include "laconic/data/synthetic.hpp"

namespace laconic {

struct TrainCommand {
  ConfigFile config;
  std::string resume = "none";
  bool overwrite = false;
  int ranks = 0;         // 0: as many as the mesh has
  int max_restarts = 0;  // of ranks that we start
  std::string json;
};

// Ranks measure themselves and their links, and rank 0 writes a hosts file.
struct MeasureCommand {
  ConfigFile config;
  int ranks = 0;         // 0: as many as the mesh has
  std::string families;  // "all", or names with commas; empty: the configuration's alone
  std::string output = "hosts.toml";
};

// Where and how a model is loaded for use.
struct ModelArguments {
  std::string path;  // checkpoint, run folder, or Hugging Face folder
  std::string device = "cpu";
  std::string dtype = "float32";
  int threads = 0;
  std::string tp;      // of the tensor grid that holds it, as mesh.tp; empty: one process does
  std::string method;  // as tensor.method; empty: its default
};

struct GenerateCommand {
  ModelArguments model;
  std::optional<std::string> prompt;
  std::vector<std::int64_t> prompt_ids;
  bool reads_stdin = false;    // a prompt from each line
  bool is_one_prompt = false;  // all of standard input instead
  std::string tokeniser;       // empty: the model's own
  std::int64_t tokens = 200;
  double temperature = 1.0;
  std::int64_t top_k = 0;
  double top_p = 1.0;
  bool greedy = false;
  std::int64_t seed = 1;
  std::int64_t samples = 1;  // of each prompt; sample i has seed + i
  std::vector<std::string> stops;
  bool stop_at_end = false;
  bool show_ids = false;
  std::string json;
};

struct EvaluateCommand {
  ModelArguments model;
  std::string data;
  std::int64_t context = 0;  // 0: the model's
  std::int64_t stride = 0;   // 0: the context
  std::int64_t samples = 0;
  std::int64_t batch = 8;
  std::int64_t beam = 4;  // of translations
  std::string json;
};

struct PredictCommand {
  ModelArguments model;
  std::string input;      // JSON lines; "-": standard input
  std::string tokeniser;  // empty: what lies beside the model
  std::int64_t batch = 16;
  std::int64_t best = 5;   // guesses for each hidden token
  std::int64_t mask = -1;  // the token that hides others; -1: the tokeniser's
  std::int64_t beam = 4;
  double length_penalty = 1;
  std::string json;  // where answers go; empty: standard output
};

struct ExportCommand {
  ModelArguments model;
  std::string folder;
  std::string dtype = "float32";
  std::uint64_t shard_bytes = 0;
};

struct PrepareCommand {
  PrepareOptions options;
  TaskKind task = TaskKind::causal;
  RecordOptions records;       // with another task
  std::string source, target;  // files side by side, instead of inputs
  std::string synthetic;       // "zipf": drawn tokens, instead of inputs
  SyntheticOptions drawn;      // with it
  std::string json;
};

struct ConfigCommand {
  ConfigFile config;
  bool show = false;
  bool skips_data = false;  // checks the configuration alone
};

struct DoctorCommand {
  std::string json;
  int threads = 0;
};

// Both carry what they write about: the table of verbs and options.
struct CompletionCommand {
  std::string shell;
  VerbEntry verbs;
};

struct ManCommand {
  VerbEntry verbs;
};

// Nothing to do any more: help was printed, or the words made no sense.
struct NoCommand {
  int exit_code = 0;
};

using Command =
    std::variant<NoCommand, TrainCommand, MeasureCommand, GenerateCommand, EvaluateCommand,
                 PredictCommand, ExportCommand, PrepareCommand, ConfigCommand, DoctorCommand,
                 CodecListCommand, CodecShowCommand, CodecEncodeCommand, CodecInspectCommand,
                 CodecDecodeCommand, CodecBenchCommand, LabUpCommand, LabDownCommand,
                 LabRateCommand, LabStatusCommand, LabRunCommand, LabReportCommand, ScheduleCommand,
                 LayoutCommand, PlanCommand, SimulateCommand, CompareCommand, StudyCommand,
                 CompletionCommand, ManCommand>;

Command parse_arguments(int argc, char** argv);

// What the words say of where and on which grid the model lies, as a configuration.
RunConfig config_of(const ModelArguments& arguments);

std::string version_text();  // "0.1.0 (commit 1bd9e6a2f0, libtorch 1.13.1)"

// Where "preset:NAME" is looked for: $LACONIC_PRESETS, or presets/ of the source tree or the
// installation that this program belongs to.
std::string presets_folder();

}  // namespace laconic
