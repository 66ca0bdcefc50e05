// laconic — the program people start. No libtorch: it answers in milliseconds, does what needs no
// tensor, and becomes laconic-worker for the rest, in the environment that worker must have.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <variant>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/arguments.hpp"
#include "laconic/cli/codec_command.hpp"
#include "laconic/cli/completion.hpp"
#include "laconic/cli/data_check.hpp"
#include "laconic/cli/guard.hpp"
#include "laconic/cli/lab_command.hpp"
#include "laconic/cli/lab_report_command.hpp"
#include "laconic/cli/lock_owner.hpp"
#include "laconic/cli/man_page.hpp"
#include "laconic/cli/measured_config.hpp"
#include "laconic/cli/subject_config.hpp"
#include "laconic/cli/train_plan.hpp"
#include "laconic/config/grid_choice.hpp"
#include "laconic/config/read.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/launch/local.hpp"
#include "laconic/launch/place.hpp"
#include "laconic/machine/cpu.hpp"
#include "laconic/machine/environment.hpp"
#include "laconic/report/console.hpp"
#include "laconic/report/table.hpp"
#include "laconic/run/run_folder.hpp"
#include "laconic/run/run_lock.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

RunConfig read(const ConfigFile& file) {
  return read_config({file.path, file.sets, presets_folder()});
}

std::string worker_program() {
  return fs::read_symlink("/proc/self/exe").parent_path() / "laconic-worker";
}

// Processors that a process may use; 0: unknown.
int affinity_of(pid_t process) {
  cpu_set_t set;
  return ::sched_getaffinity(process, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

std::vector<EnvironmentSetting> settings_of_worker(const Cpu& cpu, int threads) {
  return worker_environment(cpu, threads, current_environment(), LACONIC_TORCH_VERSION);
}

// Replaces this process by the worker, with the same words. `threads` 0: the cores, shared with
// other workers here.
int become_worker(char** argv, std::int64_t threads, int sharing = 1) {
  const Cpu cpu = detect_cpu();
  const int count = threads > 0 ? static_cast<int>(threads)
                                : threads_per_worker(usable_threads(cpu), sharing, affinity_of(0),
                                                     affinity_of(::getppid()));
  for (const EnvironmentSetting& s : settings_of_worker(cpu, count))
    ::setenv(s.name.c_str(), s.value.c_str(), 1);
  const std::string worker = worker_program();
  ::execv(worker.c_str(), argv);
  throw SystemError(worker, "run", errno);
}

// Ranks that have lost another notice within the deadline of the network; then they collect the
// records of what each was doing.
constexpr double kSecondsToEnd = 10;

// Whether a run may begin in its folder: found out here, since ranks need seconds to say so.
void require_vacant_folder(const TrainCommand& command, const RunConfig& config,
                           const std::optional<Place>& place) {
  refuse(check_resume(command.resume, command.overwrite));
  require_unlocked(config.run.folder, lock_owner(place));
  refuse(check_vacant(config.run.folder, command.resume, command.overwrite));
}

// The same words for so many ranks on this machine, which share its cores.
LaunchSpec launch_spec(const RunConfig& config, int workers, char** argv) {
  LaunchSpec spec{.program = worker_program(),
                  .environment = current_environment(),
                  .ranks = workers,
                  .port = static_cast<int>(config.network.port),
                  .patience = {.grace_seconds = config.network.deadline + kSecondsToEnd},
                  .is_terminal = is_live_terminal(stdout) && is_live_terminal(stderr),
                  .has_colour = wants_colour(stdout) && wants_colour(stderr),
                  .serves_forks = true};
  for (char** word = argv; *word != nullptr; ++word) spec.words.emplace_back(*word);
  const Cpu cpu = detect_cpu();
  const int threads = config.run.threads > 0 ? static_cast<int>(config.run.threads)
                                             : std::max(1, usable_threads(cpu) / workers);
  for (const EnvironmentSetting& s : settings_of_worker(cpu, threads))
    spec.environment[s.name] = s.value;
  return spec;
}

int launch_workers(const TrainCommand& command, const RunConfig& config, int workers, char** argv) {
  const RunLock lock(config.run.folder);
  if (!lock.note().empty()) fmt::print(stderr, "laconic: {}\n", lock.note());
  LaunchSpec spec = launch_spec(config, workers, argv);
  spec.max_restarts = command.max_restarts;
  spec.log_folder = config.run.folder;
  spec.checkpoints_folder = config.run.folder + "/checkpoints";
  spec.environment[kLockVariable] = lock.token();
  return launch_local(spec);
}

// A model that is there, used by this process, or by the ranks of the grid that the words ask for.
int run_model(const ModelArguments& model, bool reads_input, char** argv) {
  const RunConfig config = config_of(model);
  refuse(check_grid_texts(config));
  const int workers = tp_size(mesh_of(config));
  const std::optional<Place> place = find_place(current_environment());
  if (place || workers == 1)
    return become_worker(argv, model.threads, workers > 1 ? place->local_size : 1);
  LaunchSpec spec = launch_spec(config, workers, argv);
  spec.tells_once = true;
  if (reads_input) spec.input = STDIN_FILENO;
  if (reads_input && ::isatty(STDIN_FILENO) != 0)
    refuse(
        {{"--tp", "the ranks of a grid cannot read from a terminal: give them a file or a pipe"}});
  return launch_local(spec);
}

int run_train(const TrainCommand& command, char** argv) {
  const RunConfig config = read(command.config);
  const std::optional<Place> place = find_place(current_environment());
  const TrainPlan plan = plan_train(command, config, place);
  if (!place || place->rank == 0) require_vacant_folder(command, config, place);
  if (plan.workers == 0) return become_worker(argv, config.run.threads, plan.sharing);
  refuse(find_missing_data(config.data));
  return launch_workers(command, config, plan.workers, argv);
}

// Hours of work must not end with a file that cannot be written.
Problems check_written(const std::string& option, const std::string& path) {
  const std::string where = option + " " + path;
  const fs::path folder = fs::absolute(path).parent_path();
  if (!fs::is_directory(folder))
    return {{where, fmt::format("the folder {} does not exist", folder.string())}};
  if (fs::is_directory(path)) return {{where, "is a folder"}};
  if (path == "-") return {};
  // A device would be replaced by a file.
  if (fs::exists(path) && !fs::is_regular_file(path)) return {{where, "is no plain file"}};
  try {
    const AtomicFile probe(path);  // and taken away again
  } catch (const SystemError& error) {
    return {{where, error.what()}};
  }
  return {};
}

// As train does, but nothing is kept beside the hosts file.
int run_measure(const MeasureCommand& command, char** argv) {
  RunConfig config =
      read_config({command.config.path, command.config.sets, presets_folder(), false});
  Problems problems = check_subject(config);
  (void)parse_families(command.families, config.model.kind, problems);
  const std::optional<Place> place = find_place(current_environment());
  if (!place || place->rank == 0) append(problems, check_written("--output", command.output));
  refuse(problems);
  config.run.folder = "runs/measure";
  const TrainCommand as_train{.config = command.config, .ranks = command.ranks};
  const TrainPlan plan = plan_train(as_train, config, place);
  if (plan.workers == 0) return become_worker(argv, config.run.threads, plan.sharing);
  return launch_workers(as_train, config, plan.workers, argv);
}

int run_config(const ConfigCommand& command) {
  // Without a file there is nothing to check: every key, its default and its help.
  const bool is_bare = command.config.path.empty() && command.config.sets.empty();
  const RunConfig config = is_bare ? RunConfig{} : read(command.config);
  if (command.show) {
    fmt::print("{}", to_toml(config, true));
    return 0;
  }
  const DataCheck data = command.skips_data ? DataCheck() : check_data(config);
  refuse(data.problems);
  for (const std::string& warning : warnings_of(config)) fmt::print("warning: {}\n", warning);
  for (const std::string& fact : data.facts) fmt::print("{}\n", fact);
  fmt::print("{}: no problems\n", command.config.path);
  return 0;
}

nlohmann::ordered_json to_json(const PartReport& part) {
  return {{"prefix", part.prefix},
          {"documents", part.documents},
          {"prompts", part.prompts},
          {"tokens", part.tokens},
          {"bytes", part.bytes}};
}

void write_summary(const PrepareCommand& command, const PrepareReport& report) {
  nlohmann::ordered_json json = {{"command", "prepare"},
                                 {"vocabulary", report.vocabulary},
                                 {"tokeniser", report.tokeniser_folder},
                                 {"train", to_json(report.train)},
                                 {"valid", to_json(report.valid)},
                                 {"tokens_per_byte", report.tokens_per_byte()},
                                 {"seconds", report.seconds},
                                 {"megabytes_per_second", report.megabytes_per_second()}};
  if (!report.label_names.empty()) json["label_names"] = report.label_names;
  write_atomically(command.json, json.dump(2) + "\n");
}

std::string part_table(const PrepareReport& report) {
  Table table({{"part", Align::left}, {"documents"}, {"bytes"}, {"tokens"}});
  for (const PartReport* part : {&report.train, &report.valid})
    if (!part->prefix.empty() && part->documents > 0)
      table.add({part->prefix, with_commas(static_cast<std::int64_t>(part->documents)),
                 human_bytes(static_cast<double>(part->bytes)),
                 with_commas(static_cast<std::int64_t>(part->tokens))});
  return to_text(table);
}

std::string describe(const PrepareReport& report) {
  std::string text = part_table(report);
  text += fmt::format(
      "vocabulary {}, {:.3f} tokens per byte, {} in {} ({:.1f} MB/s); tokeniser in {}\n",
      with_commas(report.vocabulary), report.tokens_per_byte(),
      human_bytes(static_cast<double>(report.bytes())), human_seconds(report.seconds),
      report.megabytes_per_second(), report.tokeniser_folder);
  if (const std::uint64_t prompts = report.train.prompts + report.valid.prompts; prompts > 0)
    text += fmt::format("{} documents are prompts and completions: training asks for the latter\n",
                        with_commas(static_cast<std::int64_t>(prompts)));
  if (!report.label_names.empty())
    text += fmt::format("{} classes: {}\n", report.label_names.size(),
                        printable(join(report.label_names, ", "), 200));
  if (!report.note.empty()) text += "note: " + report.note + "\n";
  return text;
}

// The options that records need, in the place of those of text.
void apply_task(PrepareCommand& command) {
  PrepareOptions& o = command.options;
  Problems problems;
  RecordOptions records = command.records;
  records.task = command.task;
  if (command.task == TaskKind::causal) {
    if (records != RecordOptions{.task = TaskKind::causal} || !command.source.empty())
      problems.push_back({"--task",
                          "columns, labels, layouts and --source are for another task "
                          "than causal: name it"});
    if (o.source.format == SourceFormat::tsv || o.source.format == SourceFormat::csv)
      problems.push_back({"--format", "tables are for --task; text is not in columns"});
    refuse(problems);
    return;
  }
  if (!command.source.empty()) {
    if (command.task != TaskKind::translate || !o.inputs.empty())
      problems.push_back({"--source", "is for --task translate, and instead of INPUT"});
    o.inputs = {command.source, command.target};
    o.source.is_side_by_side = true;
  }
  append(problems, check(records));
  refuse(problems);
  o.source.records = resolved(std::move(records));
}

int run_synthetic(PrepareCommand command) {
  if (!command.options.inputs.empty() || command.task != TaskKind::causal)
    refuse({{"--synthetic", "draws tokens of a text, and reads no INPUT"}});
  command.drawn.output = command.options.output;
  command.drawn.validation_share = command.options.validation_share;
  command.drawn.overwrite = command.options.overwrite;
  const PrepareReport report = prepare_synthetic(command.drawn);
  fmt::print("{}{} tokens of {} words, drawn in {}; there is no tokeniser\n", part_table(report),
             with_commas(static_cast<std::int64_t>(report.tokens())),
             with_commas(report.vocabulary), human_seconds(report.seconds));
  if (!command.json.empty()) write_summary(command, report);
  return 0;
}

int run_prepare(PrepareCommand command) {
  if (!command.synthetic.empty()) return run_synthetic(std::move(command));
  apply_task(command);
  const bool is_live = is_live_terminal(stderr);
  if (is_live)
    command.options.progress = [](const PrepareProgress& p) {
      fmt::print(stderr, "\r\033[K{}: {}{}", p.phase,
                 human_bytes(static_cast<double>(p.bytes_done)),
                 p.bytes_total > 0 ? " of " + human_bytes(static_cast<double>(p.bytes_total)) : "");
    };
  const PrepareReport report = prepare(command.options);
  if (is_live) fmt::print(stderr, "\r\033[K");
  fmt::print("{}", describe(report));
  if (!command.json.empty()) write_summary(command, report);
  return 0;
}

int run_completion(const CompletionCommand& command) {
  const CompletionWords words = known_words(presets_folder());
  fmt::print("{}", command.shell == "bash"  ? completion_for_bash(command.verbs, words)
                   : command.shell == "zsh" ? completion_for_zsh(command.verbs, words)
                                            : completion_for_fish(command.verbs, words));
  return 0;
}

void check_summary_path(const Command& command) {
  const std::string json = std::visit(
      [](const auto& c) -> std::string {
        if constexpr (requires { c.json; }) return c.json;
        return {};
      },
      command);
  if (!json.empty()) refuse(check_written("--json", json));
}

int run(const Command& command, char** argv) {
  check_summary_path(command);
  if (const auto* c = std::get_if<NoCommand>(&command)) return c->exit_code;
  if (const auto* c = std::get_if<ConfigCommand>(&command)) return run_config(*c);
  if (const auto* c = std::get_if<PrepareCommand>(&command)) return run_prepare(*c);
  if (const auto* c = std::get_if<CodecListCommand>(&command)) return run_codec(*c);
  if (const auto* c = std::get_if<CodecShowCommand>(&command)) return run_codec(*c);
  if (const auto* c = std::get_if<CodecEncodeCommand>(&command)) return run_codec(*c);
  if (const auto* c = std::get_if<CodecInspectCommand>(&command)) return run_codec(*c);
  if (const auto* c = std::get_if<CodecDecodeCommand>(&command)) return run_codec(*c);
  if (const auto* c = std::get_if<CodecBenchCommand>(&command)) return run_codec(*c);
  if (const auto* c = std::get_if<LabUpCommand>(&command)) return run_lab(*c);
  if (const auto* c = std::get_if<LabRunCommand>(&command)) return run_lab(*c);
  if (const auto* c = std::get_if<LabRateCommand>(&command)) return run_lab(*c);
  if (const auto* c = std::get_if<LabStatusCommand>(&command)) return run_lab(*c);
  if (const auto* c = std::get_if<LabDownCommand>(&command)) return run_lab(*c);
  if (const auto* c = std::get_if<LabReportCommand>(&command)) return run_lab(*c);
  if (const auto* c = std::get_if<ScheduleCommand>(&command)) return run_schedule(*c);
  if (const auto* c = std::get_if<LayoutCommand>(&command)) return run_layout(*c, presets_folder());
  if (const auto* c = std::get_if<PlanCommand>(&command)) return run_plan(*c, presets_folder());
  if (const auto* c = std::get_if<SimulateCommand>(&command))
    return run_simulate(*c, presets_folder());
  if (const auto* c = std::get_if<StudyCommand>(&command)) return run_study_file(*c);
  if (const auto* c = std::get_if<CompareCommand>(&command)) return run_compare(*c);
  if (const auto* c = std::get_if<CompletionCommand>(&command)) return run_completion(*c);
  if (const auto* c = std::get_if<ManCommand>(&command)) {
    fmt::print("{}", man_page(c->verbs, version_text()));
    return 0;
  }
  if (const auto* c = std::get_if<TrainCommand>(&command)) return run_train(*c, argv);
  if (const auto* c = std::get_if<MeasureCommand>(&command)) return run_measure(*c, argv);
  if (const auto* c = std::get_if<GenerateCommand>(&command))
    return run_model(c->model, c->reads_stdin, argv);
  if (const auto* c = std::get_if<EvaluateCommand>(&command))
    return run_model(c->model, /*reads_input=*/false, argv);
  if (const auto* c = std::get_if<PredictCommand>(&command))
    return run_model(c->model, c->input == "-", argv);
  if (const auto* c = std::get_if<ExportCommand>(&command))
    return run_model(c->model, /*reads_input=*/false, argv);
  return become_worker(argv, std::get<DoctorCommand>(command).threads);
}

}  // namespace
}  // namespace laconic

int main(int argc, char** argv) {
  return laconic::guarded([&] { return laconic::run(laconic::parse_arguments(argc, argv), argv); });
}
