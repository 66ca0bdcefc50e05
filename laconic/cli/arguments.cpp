#include "laconic/cli/arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/codec_argument.hpp"
#include "laconic/cli/commit.hpp"
#include "laconic/cli/example.hpp"
#include "laconic/cli/lab_argument.hpp"
#include "laconic/cli/number_check.hpp"
#include "laconic/cli/schedule_argument.hpp"
#include "laconic/config/option.hpp"

namespace laconic {

namespace {

// Verbs share pieces of their command lines; each piece is added by one function.

void add_config(CLI::App& verb, ConfigFile& config, bool is_required = true) {
  verb.add_option("CONFIG", config.path,
                  "TOML file, or preset:NAME; `laconic config show` prints every key")
      ->required(is_required);
  verb.add_option("--set", config.sets, "override a key: section.key=value (may be repeated)")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
}

void add_summary(CLI::App& verb, std::string& json) {
  verb.add_option("--json", json, "also write a summary to FILE")->type_name("FILE");
}

void add_model(CLI::App& verb, ModelArguments& model) {
  verb.add_option("MODEL", model.path,
                  "checkpoint, run folder (its newest checkpoint), RUN/best, or Hugging Face GPT-2 "
                  "folder")
      ->required();
  verb.add_option("--device", model.device, "where tensors live")
      ->check(CLI::IsMember(names_in(kDeviceNames)))
      ->capture_default_str();
  verb.add_option("--dtype", model.dtype, "of the arithmetic")
      ->check(CLI::IsMember(names_in(kRunDtypeNames)))
      ->capture_default_str();
  verb.add_option("--threads", model.threads, "compute threads; 0: one per available core")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

// The words of each verb go straight into its command; `chosen` says which verb was used.
class Parser {
 public:
  Parser()
      : app_("Laconic trains language models on machines joined by slow networks.", "laconic") {
    app_.require_subcommand(1);
    app_.set_version_flag("--version", "laconic " + version_text());
    app_.get_formatter()->column_width(34);
    add_train();
    add_prepare();
    add_generate();
    add_evaluate();
    add_export();
    add_config_verbs();
    add_codec_verbs();
    add_lab_verbs();
    add_schedule();
    add_compare();
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
      const Chosen chosen = choose(words);
      if (chosen.verb->get_require_subcommand_min() > 0 && chosen.rest.empty())
        std::cerr << help_of(chosen.verb);
      else if (!complain_of_verb(chosen) && !complain_of_option(chosen))
        complain(chosen, reason_of(error));
      return NoCommand{kExitRefused};
    }
    return finish_();
  }

 private:
  // The verb that words begin with, as far as they are verbs, and what comes behind.
  struct Chosen {
    CLI::App* verb = nullptr;
    std::vector<std::string> rest;
  };
  Chosen choose(const std::vector<std::string>& words) {
    CLI::App* verb = &app_;
    std::size_t used = 0;
    while (used < words.size() && verb->get_require_subcommand_min() > 0) {
      const std::vector<CLI::App*> known = verb->get_subcommands(nullptr);
      const auto next = std::find_if(known.begin(), known.end(), [&](const CLI::App* one) {
        return one->get_name() == words[used];
      });
      if (next == known.end()) break;
      verb = *next;
      ++used;
    }
    return {verb, {words.begin() + static_cast<std::ptrdiff_t>(used), words.end()}};
  }

  // "laconic config check"
  static std::string path_of(const CLI::App* verb) {
    const CLI::App* parent = verb->get_parent();
    return parent == nullptr ? verb->get_name() : path_of(parent) + " " + verb->get_name();
  }

  // As --help prints it.
  static std::string help_of(const CLI::App* verb) {
    const CLI::App* parent = verb->get_parent();
    return verb->help(parent == nullptr ? "" : path_of(parent));
  }

  Command help_about(const std::vector<std::string>& words) {
    const Chosen chosen = choose(words);
    if (complain_of_verb(chosen)) return NoCommand{kExitRefused};
    std::cout << help_of(chosen.verb);
    return NoCommand{0};
  }

  static void complain(const Chosen& chosen, const std::string& what) {
    const std::string path = path_of(chosen.verb);
    std::cerr << path << ": " << what << (what.ends_with('?') ? " (`" : "; `") << path
              << " --help` lists all options" << (what.ends_with('?') ? ")\n" : "\n");
  }

  // In words of ours where CLI11's are about its own doings.
  static std::string reason_of(const CLI::ParseError& error) {
    const std::string what = error.what();
    constexpr std::string_view kConversion = "Could not convert: ";
    const std::size_t equals = what.find(" = ");
    if (!what.starts_with(kConversion) || equals == std::string::npos) return what;
    return fmt::format("{}: '{}' is no number, or too large",
                       what.substr(kConversion.size(), equals - kConversion.size()),
                       what.substr(equals + 3));
  }

  static void add_examples(CLI::App& app, const std::string& verb) {
    app.footer(examples_of(verb));
    for (CLI::App* inner : app.get_subcommands(nullptr))
      add_examples(*inner, verb.empty() ? inner->get_name() : verb + " " + inner->get_name());
  }

  // True when the reason is an option that does not exist: CLI11 tells first what is missing.
  static bool complain_of_option(const Chosen& chosen) {
    for (std::size_t i = 0; i < chosen.rest.size(); ++i) {
      const std::string& word = chosen.rest[i];
      if (word == "--") return false;
      if (word.size() < 2 || word[0] != '-' || word.find_first_of("0123456789.") == 1) continue;
      const std::string name = word.substr(0, word.find('='));
      if (const CLI::Option* option = chosen.verb->get_option_no_throw(name)) {
        if (option->get_items_expected_max() > 0 && name == word) ++i;  // its value
        continue;
      }
      std::vector<std::string> known;
      for (const CLI::Option* option : chosen.verb->get_options())
        for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
      const std::string likely = nearest(name, known);
      const bool has_command = chosen.verb->get_option_no_throw("COMMAND") != nullptr;
      complain(chosen,
               fmt::format("no option '{}'{}{}", name,
                           has_command ? "; put -- before COMMAND, if it is one of that" : "",
                           likely.empty() ? "" : "; did you mean '" + likely + "'?"));
      return true;
    }
    return false;
  }

  // True when the reason is a verb that does not exist: CLI11 would only say that one is required.
  static bool complain_of_verb(const Chosen& chosen) {
    if (chosen.verb->get_require_subcommand_min() == 0 || chosen.rest.empty() ||
        chosen.rest[0].starts_with('-'))
      return false;
    std::vector<std::string> known;
    for (const CLI::App* verb : chosen.verb->get_subcommands(nullptr))
      known.push_back(verb->get_name());
    const std::string likely = nearest(chosen.rest[0], known);
    std::cerr << "laconic: no verb '" << chosen.rest[0] << "'"
              << (likely.empty() ? "" : "; did you mean '" + likely + "'?")
              << " (there are: " << join(known, ", ") << ")\n";
    return true;
  }

  // Registers a verb and what its use makes of the filled-in command.
  template <class C>
  CLI::App& add_verb(const char* name, const char* help, C& command, CLI::App* parent = nullptr) {
    CLI::App* verb = (parent != nullptr ? parent : &app_)->add_subcommand(name, help);
    verb->callback([this, &command] { finish_ = [&command]() -> Command { return command; }; });
    return *verb;
  }

  void add_train() {
    CLI::App& verb = add_verb("train", "train a model as a configuration says", train_);
    add_config(verb, train_.config);
    verb.add_option("--resume", train_.resume,
                    "none: begin anew; auto: continue from the newest good checkpoint, if any; "
                    "best: from the one with the least validation loss; or a checkpoint, or the "
                    "folder of a run: its newest good one")
        ->type_name("none|auto|best|FOLDER")
        ->capture_default_str();
    verb.add_flag("--overwrite", train_.overwrite, "throw away an older run in the same folder");
    verb.add_option("--ranks", train_.ranks,
                    "processes to start on this machine, which must be as many as the mesh has; "
                    "default: that many, or those that torchrun, mpirun or srun has started")
        ->check(CLI::Range(1, 4096))
        ->type_name("N");
    verb.add_option("--max-restarts", train_.max_restarts,
                    "when a rank fails, start all again from the last good checkpoint, at most N "
                    "times")
        ->check(CLI::Range(0, 1000000))
        ->type_name("N")
        ->capture_default_str();
    add_summary(verb, train_.json);
  }

  void add_prepare() {
    CLI::App& verb =
        add_verb("prepare", "turn text into a dataset: PREFIX.bin and PREFIX.idx", prepare_);
    PrepareOptions& o = prepare_.options;
    verb.add_option("INPUT", o.inputs,
                    "text and .jsonl files, also as .gz, .zst or .xz; folders of .txt and .jsonl; "
                    "- is standard input")
        ->required();
    verb.add_option("--out", o.output, "where to: PREFIX of the files to write")
        ->required()
        ->type_name("PREFIX");
    auto* tokeniser =
        verb.add_option("--tokeniser,--tokenizer", o.tokeniser,
                        "bytes, or a folder or file of Hugging Face: tokenizer.json, vocab.txt, "
                        "tokenizer.model, vocab.json and merges.txt")
            ->type_name("bytes|FOLDER")
            ->capture_default_str();
    verb.add_option("--train-bpe", o.train_vocabulary,
                    "train a byte-level BPE of SIZE tokens on the input")
        ->type_name("SIZE")
        ->excludes(tokeniser);
    verb.add_option_function<std::string>(
            "--documents",
            [&o](const std::string& word) { o.source.documents = *parse_document_split(word); },
            "what a document is in .txt files")
        ->check(CLI::IsMember({"file", "line", "paragraph"}))
        ->default_str("file");
    verb.add_option_function<std::string>(
            "--format",
            [&o](const std::string& word) {
              o.source.format = word == "jsonl"  ? SourceFormat::json_lines
                                : word == "text" ? SourceFormat::text
                                                 : SourceFormat::by_name;
            },
            "what inputs hold; auto: by their names, and text in -")
        ->check(CLI::IsMember({"auto", "text", "jsonl"}))
        ->default_str("auto");
    verb.add_option("--text-key", o.source.json_key, "key of the text in .jsonl files")
        ->capture_default_str();
    verb.add_option("--valid", o.validation_share,
                    "share of the documents that goes to PREFIX-valid")
        ->capture_default_str();
    verb.add_flag("!--no-end-of-document", o.append_end_of_document,
                  "do not put a token between documents");
    verb.add_option("--threads", o.threads, "0: as many as the machine has")->capture_default_str();
    verb.add_flag("--overwrite", o.overwrite, "replace an older dataset of that name");
    add_summary(verb, prepare_.json);
  }

  void add_generate() {
    CLI::App& verb = add_verb("generate", "continue a text", generate_);
    GenerateCommand& c = generate_;
    add_model(verb, c.model);
    auto* prompt =
        verb.add_option_function<std::string>(
                "--prompt", [&c](const std::string& text) { c.prompt = text; }, "text to continue")
            ->type_name("TEXT");
    verb.add_option("--prompt-ids", c.prompt_ids, "token ids to continue, with commas: 5,17,3")
        ->delimiter(',')
        ->excludes(prompt);
    auto* from_stdin = verb.add_flag("--stdin", c.reads_stdin,
                                     "continue each line of standard input that is not blank")
                           ->excludes(prompt)
                           ->excludes("--prompt-ids");
    verb.add_flag("--whole", c.is_one_prompt,
                  "with --stdin: all of it is one prompt, but for a last line break")
        ->needs(from_stdin);
    verb.add_option("--tokeniser,--tokenizer", c.tokeniser,
                    "folder or `bytes`; default: what lies beside the model")
        ->type_name("bytes|FOLDER");
    verb.add_option("--tokens", c.tokens, "how many to make")
        ->check(refuse_negative)
        ->capture_default_str();
    verb.add_option("--temperature", c.temperature,
                    "below 1 is bolder about likely tokens; 0 is greedy")
        ->check(refuse_negative)
        ->capture_default_str();
    verb.add_option("--top-k", c.top_k, "only the K most likely tokens; 0: all")
        ->check(refuse_negative)
        ->capture_default_str();
    verb.add_option("--top-p", c.top_p, "only the likeliest tokens that together reach P")
        ->check(CLI::Range(0.0, 1.0))
        ->check(refuse_nan)
        ->capture_default_str();
    verb.add_flag("--greedy", c.greedy, "always the most likely token");
    verb.add_option("--seed", c.seed, "of the draws")
        ->check(refuse_negative)
        ->capture_default_str();
    verb.add_option("--samples", c.samples,
                    "texts for each prompt; sample i = 0, 1, ... is what --seed S + i makes")
        ->check(CLI::Range(1, 1000000))
        ->type_name("N")
        ->capture_default_str();
    verb.add_option("--stop", c.stops, "end before this text (may be repeated)")
        ->allow_extra_args(false)
        ->type_name("TEXT");
    verb.add_flag("--stop-at-end", c.stop_at_end, "stop at the end of a document");
    verb.add_flag("--show-ids", c.show_ids, "print token ids after the text");
    add_summary(verb, c.json);
  }

  void add_evaluate() {
    CLI::App& verb =
        add_verb("evaluate", "loss, perplexity and bits per byte on a dataset", evaluate_);
    add_model(verb, evaluate_.model);
    verb.add_option("--data", evaluate_.data, "PREFIX of a prepared dataset")
        ->required()
        ->type_name("PREFIX");
    verb.add_option("--context", evaluate_.context, "tokens per sample; 0: the model's context")
        ->check(refuse_negative)
        ->capture_default_str();
    verb.add_option("--stride", evaluate_.stride,
                    "overlapping windows, which begin N tokens apart; each token is scored once; "
                    "0: --context, no overlap")
        ->check(CLI::NonNegativeNumber)
        ->type_name("N")
        ->capture_default_str();
    verb.add_option("--samples", evaluate_.samples, "how many; 0: all")
        ->check(refuse_negative)
        ->capture_default_str();
    verb.add_option("--batch", evaluate_.batch, "samples at a time")
        ->check(refuse_below_one)
        ->capture_default_str();
    add_summary(verb, evaluate_.json);
  }

  void add_export() {
    CLI::App& verb = add_verb("export", "write a model as a Hugging Face GPT-2 folder", export_);
    verb.add_option("MODEL", export_.model.path, "checkpoint, run folder, or Hugging Face folder")
        ->required();
    verb.add_option("FOLDER", export_.folder, "to write; must not exist or be empty")->required();
    verb.add_option("--dtype", export_.dtype, "of the weights")
        ->check(CLI::IsMember(names_in(kDtypeLongNames)))
        ->capture_default_str();
    verb.add_option("--shard-bytes", export_.shard_bytes,
                    "split into files of at most N bytes; 0: one file")
        ->type_name("N");
  }

  void add_config_verbs() {
    CLI::App* config = app_.add_subcommand("config", "look at a configuration without running it");
    config->require_subcommand(1);
    CLI::App& check = add_verb("check", "say everything that is wrong with it, and with its data",
                               check_, config);
    add_config(check, check_.config);
    check.add_flag("--no-data", check_.skips_data, "do not look at the data");
    add_config(
        add_verb("show", "print it whole, with help; without CONFIG: every key and its default",
                 show_, config),
        show_.config, false);
    show_.show = true;
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
  PrepareCommand prepare_;
  GenerateCommand generate_;
  EvaluateCommand evaluate_;
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
  CompareCommand compare_;
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
  if (fs::is_directory(installed)) return installed.lexically_normal().string();
  // build/bin or build/PRESET/bin inside the source tree
  for (fs::path up = bin; up.has_relative_path(); up = up.parent_path())
    if (fs::is_regular_file(up / "presets/gpt-small.toml")) return (up / "presets").string();
  return "presets";
}

}  // namespace laconic
