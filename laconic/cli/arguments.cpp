#include "laconic/cli/arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>

#include "laconic/base/error.hpp"
#include "laconic/cli/codec_argument.hpp"
#include "laconic/cli/commit.hpp"
#include "laconic/cli/complaint.hpp"
#include "laconic/cli/example.hpp"
#include "laconic/cli/lab_argument.hpp"
#include "laconic/cli/layout_argument.hpp"
#include "laconic/cli/model_argument.hpp"
#include "laconic/cli/plan_argument.hpp"
#include "laconic/cli/prepare_argument.hpp"
#include "laconic/cli/schedule_argument.hpp"
#include "laconic/cli/simulate_argument.hpp"
#include "laconic/cli/summary_argument.hpp"
#include "laconic/cli/train_argument.hpp"

namespace laconic {

namespace {

// The words of each verb go straight into its command; `finish_` knows which verb was used.
class Parser {
 public:
  Parser()
      : app_("Laconic trains language models on machines joined by slow networks.", "laconic") {
    app_.require_subcommand(1);
    app_.set_version_flag("--version", "laconic " + version_text());
    app_.get_formatter()->column_width(34);
    add_model_verbs();
    add_config_verbs();
    add_codec_verbs();
    add_lab_verbs();
    add_schedule();
    add_layout();
    add_words(add_verb("plan", "which mesh, schedule and messages suit these machines", plan_),
              plan_);
    add_words(add_verb("simulate", "predict a step of a run on described hosts", simulate_),
              simulate_);
    add_compare();
    add_words(add_verb("study", "run the trials of a study file, and write its page", study_),
              study_);
    add_doctor();
    add_completion();
    add_man();
    add_examples(app_, "");
  }

  Command parse(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (!words.empty() && words[0] == "help") return help_about({words.begin() + 1, words.end()});
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return NoCommand{app_.exit(error)};  // help, version
      const ChosenVerb chosen = choose_verb(app_, words);
      if (chosen.verb->get_require_subcommand_min() > 0 && chosen.rest.empty())
        std::cerr << help_of(chosen.verb);
      else if (!complain_of_verb(chosen) && !complain_of_option(chosen))
        complain(chosen, reason_of(error));
      return NoCommand{kExitRefused};
    }
    return finish_();
  }

 private:
  Command help_about(const std::vector<std::string>& words) {
    const ChosenVerb chosen = choose_verb(app_, words);
    if (complain_of_verb(chosen)) return NoCommand{kExitRefused};
    std::cout << help_of(chosen.verb);
    return NoCommand{0};
  }

  static void add_examples(CLI::App& app, const std::string& verb) {
    app.footer(examples_of(verb));
    for (CLI::App* inner : app.get_subcommands(nullptr))
      add_examples(*inner, verb.empty() ? inner->get_name() : verb + " " + inner->get_name());
  }

  // Registers a verb and what its use makes of the filled-in command.
  template <class C>
  CLI::App& add_verb(const char* name, const char* help, C& command, CLI::App* parent = nullptr) {
    CLI::App* verb = (parent != nullptr ? parent : &app_)->add_subcommand(name, help);
    verb->callback([this, &command] { finish_ = [&command]() -> Command { return command; }; });
    return *verb;
  }

  void add_model_verbs() {
    add_words(add_verb("train", "train a model as a configuration says", train_), train_);
    add_words(
        add_verb("measure", "measure how fast ranks and links are here, and write a hosts file",
                 measure_),
        measure_);
    add_words(add_verb("prepare", "turn text into a dataset: PREFIX.bin and PREFIX.idx", prepare_),
              prepare_);
    add_words(add_verb("generate", "continue a text", generate_), generate_);
    add_words(add_verb("evaluate", "loss and metrics on a dataset", evaluate_), evaluate_);
    add_words(add_verb("predict", "answer lines of JSON, one by one", predict_), predict_);
    add_words(add_verb("export", "write a model as a Hugging Face folder", export_), export_);
  }

  void add_config_verbs() {
    CLI::App* config = app_.add_subcommand("config", "look at a configuration without running it");
    config->require_subcommand(1);
    add_words(add_verb("check", "say everything that is wrong with it, and with its data", check_,
                       config),
              check_);
    show_.show = true;
    add_words(
        add_verb("show", "print it whole, with help; without CONFIG: every key and its default",
                 show_, config),
        show_);
  }

  void add_codec_verbs() {
    CLI::App* codec = app_.add_subcommand("codec", "look at codecs, and at frames on disk");
    codec->require_subcommand(1);
    add_words(add_verb("list", "every codec with its options and their defaults", list_, codec),
              list_);
    add_words(add_verb("show", "what a codec makes of a tensor: bytes, ratio, properties",
                       show_codec_, codec),
              show_codec_);
    add_words(add_verb("encode", "write the tensors of a file as frames", encode_, codec), encode_);
    add_words(add_verb("inspect", "explain frames byte by byte", inspect_, codec), inspect_);
    add_words(add_verb("decode", "turn frames back into tensors, and compare", decode_, codec),
              decode_);
    add_words(add_verb("bench", "how fast codecs are here, in copies of the tensor", bench_, codec),
              bench_);
  }

  void add_lab_verbs() {
    CLI::App* lab = app_.add_subcommand("lab", "a slow network on this machine (needs root)");
    lab->require_subcommand(1);
    add_words(add_verb("up", "make hosts and the links between them", lab_up_, lab), lab_up_);
    add_words(
        add_verb("run", "start a command on every host, as the ranks of one run", lab_run_, lab),
        lab_run_);
    add_words(add_verb("rate", "change how fast the links are", lab_rate_, lab), lab_rate_);
    add_words(add_verb("status", "hosts, addresses, rates and bytes so far", lab_status_, lab),
              lab_status_);
    add_words(add_verb("down", "remove a lab", lab_down_, lab), lab_down_);
    add_words(add_verb("report", "measure methods against each other, and write a report",
                       lab_report_, lab),
              lab_report_);
  }

  void add_schedule() {
    add_words(add_verb("schedule", "time, draw and compare pipeline schedules", schedule_),
              schedule_);
  }

  void add_layout() {
    add_words(add_verb("layout", "who holds what in a grid of tensor-parallel ranks", layout_),
              layout_);
  }

  void add_compare() {
    CLI::App& verb =
        add_verb("compare", "runs side by side: speed, bytes and loss, and a picture", compare_);
    verb.add_option("RUN", compare_.runs, "folders of runs, 2 to 8; the first is the measure")
        ->required()
        ->expected(2, 8);
    verb.add_option("--by", compare_.by, "x axis of the picture")
        ->check(CLI::IsMember({"seconds", "steps"}))
        ->capture_default_str();
    verb.add_option("--columns", compare_.columns,
                    "of the picture, labels included; default: the terminal's, or 100")
        ->check(CLI::Range(40, 1000))
        ->type_name("N");
    verb.add_option("--svg", compare_.svg, "also write the picture to FILE")->type_name("FILE");
    add_summary(verb, compare_.json);
  }

  void add_doctor() {
    CLI::App& verb =
        add_verb("doctor", "examine this machine: libtorch, BLAS, speed, memory", doctor_);
    verb.add_option("--threads", doctor_.threads, "0: one per available core")
        ->check(CLI::Range(0, 4096));
    add_summary(verb, doctor_.json);
  }

  void add_completion() {
    CLI::App& verb = add_verb(
        "completion", "print a script that lets a shell complete laconic's words", completion_);
    verb.add_option("SHELL", completion_.shell, "which shell")
        ->check(CLI::IsMember({"bash", "zsh", "fish"}))
        ->required();
    describe_into(verb, completion_);
  }

  void add_man() {
    describe_into(add_verb("man", "print the manual page: `laconic man | man -l -`", man_), man_);
  }

  // Verbs that write about all verbs get their table when they are used.
  template <class C>
  void describe_into(CLI::App& verb, C& command) {
    verb.callback([this, &command] {
      finish_ = [this, &command]() -> Command {
        command.verbs = describe_verbs(app_);
        return command;
      };
    });
  }

  CLI::App app_;
  std::function<Command()> finish_;
  TrainCommand train_;
  MeasureCommand measure_;
  PrepareCommand prepare_;
  GenerateCommand generate_;
  EvaluateCommand evaluate_;
  PredictCommand predict_;
  ExportCommand export_;
  ConfigCommand check_, show_;
  CodecListCommand list_;
  CodecShowCommand show_codec_;
  CodecEncodeCommand encode_;
  CodecInspectCommand inspect_;
  CodecDecodeCommand decode_;
  CodecBenchCommand bench_;
  LabUpCommand lab_up_;
  LabRunCommand lab_run_;
  LabRateCommand lab_rate_;
  LabStatusCommand lab_status_;
  LabDownCommand lab_down_;
  LabReportCommand lab_report_;
  ScheduleCommand schedule_;
  LayoutCommand layout_;
  PlanCommand plan_;
  SimulateCommand simulate_;
  CompareCommand compare_;
  StudyCommand study_;
  DoctorCommand doctor_;
  CompletionCommand completion_;
  ManCommand man_;
};

}  // namespace

Command parse_arguments(int argc, char** argv) {
  return Parser().parse(argc, argv);
}

std::string version_text() {
  return fmt::format("{} (commit {}, libtorch {})", LACONIC_VERSION, build_commit(),
                     LACONIC_TORCH_VERSION);
}

std::string presets_folder() {
  if (const char* set = std::getenv("LACONIC_PRESETS")) return set;
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path bin = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path installed = bin / "../share/laconic/presets";
  if (fs::is_directory(installed, ignored)) return installed.lexically_normal().string();
  // build/bin or build/PRESET/bin inside the source tree
  for (fs::path up = bin; up.has_relative_path(); up = up.parent_path())
    if (fs::is_regular_file(up / "presets/gpt-small.toml", ignored))
      return (up / "presets").string();
  return "presets";
}

}  // namespace laconic
