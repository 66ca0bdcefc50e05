#include "laconic/cli/arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/codec_argument.hpp"
#include "laconic/cli/commit.hpp"
#include "laconic/cli/lab_argument.hpp"
#include "laconic/cli/schedule_argument.hpp"
#include "laconic/config/option.hpp"

namespace laconic {

namespace {

constexpr const char* kExamples = R"(Examples:
  laconic prepare book.txt --out data/book --train-bpe 4096 --valid 0.05
  laconic train examples/quickstart/quickstart.toml --set train.steps=200
  laconic train examples/quickstart/quickstart.toml --resume auto
  laconic train mine.toml --set mesh.dp=4 --ranks 4 --max-restarts 3
  laconic generate runs/quickstart/slow-network --prompt "The harbour" --temperature 0.8
  laconic evaluate runs/quickstart/slow-network --data runs/quickstart/data/pellhaven-valid
  laconic compare runs/quickstart/exact runs/quickstart/slow-network --svg loss.svg
  laconic doctor

Exit status: 0 done, 1 failed, 2 refused (a bad request or input file), 3 another rank was lost,
128 + signal when interrupted after saving.)";

// CLI11's ranges let NaN through.
std::string refuse_nan(const std::string& text) {
  char* end = nullptr;
  return std::isnan(std::strtod(text.c_str(), &end)) ? text + " is not a number" : "";
}

// Verbs share pieces of their command lines; each piece is added by one function.

void add_config(CLI::App& verb, ConfigFile& config, bool is_required = true) {
  verb.add_option("CONFIG", config.path, "TOML file; `laconic config show` prints every key")
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
    app_.footer(kExamples);
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
  }

  Command parse(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::RequiredError& error) {
      if (!complain_of_verb(argc, argv)) app_.exit(error);
      return NoCommand{kExitRefused};
    } catch (const CLI::ParseError& error) {
      return NoCommand{app_.exit(error) == 0 ? 0 : kExitRefused};
    }
    return finish_();
  }

 private:
  // True when the reason is a verb that does not exist: CLI11 would only say that one is required.
  bool complain_of_verb(int argc, char** argv) {
    CLI::App* app = &app_;
    for (int i = 1; i < argc && argv[i][0] != '-' && app->get_require_subcommand_min() > 0; ++i) {
      std::vector<std::string> known;
      for (const CLI::App* verb : app->get_subcommands(nullptr)) known.push_back(verb->get_name());
      if (std::find(known.begin(), known.end(), argv[i]) == known.end()) {
        const std::string likely = nearest(argv[i], known);
        std::cerr << "laconic: no verb '" << argv[i] << "'"
                  << (likely.empty() ? "" : "; did you mean '" + likely + "'?")
                  << " (there are: " << join(known, ", ") << ")\n";
        return true;
      }
      app = app->get_subcommand(argv[i]);
    }
    return false;
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
                    "best: from the one with the least validation loss; or a checkpoint")
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
    verb.add_option("INPUT", o.inputs, ".txt and .jsonl files, and folders of them")->required();
    verb.add_option("--out", o.output, "where to: PREFIX of the files to write")
        ->required()
        ->type_name("PREFIX");
    auto* tokeniser =
        verb.add_option(
                "--tokeniser", o.tokeniser,
                "bytes, or a folder with vocab.json and merges.txt (or encoder.json and vocab.bpe)")
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
    verb.add_option("--tokeniser", c.tokeniser,
                    "folder or `bytes`; default: what lies beside the model");
    verb.add_option("--tokens", c.tokens, "how many to make")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    verb.add_option("--temperature", c.temperature,
                    "below 1 is bolder about likely tokens; 0 is greedy")
        ->check(CLI::NonNegativeNumber)
        ->check(refuse_nan)
        ->capture_default_str();
    verb.add_option("--top-k", c.top_k, "only the K most likely tokens; 0: all")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    verb.add_option("--top-p", c.top_p, "only the likeliest tokens that together reach P")
        ->check(CLI::Range(0.0, 1.0))
        ->check(refuse_nan)
        ->capture_default_str();
    verb.add_flag("--greedy", c.greedy, "always the most likely token");
    verb.add_option("--seed", c.seed, "of the draws")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
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
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    verb.add_option("--samples", evaluate_.samples, "how many; 0: all")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    verb.add_option("--batch", evaluate_.batch, "samples at a time")
        ->check(CLI::PositiveNumber)
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
    add_config(add_verb("check", "say everything that is wrong with it", check_, config),
               check_.config);
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
