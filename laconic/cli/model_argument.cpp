#include "laconic/cli/model_argument.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "laconic/cli/number_check.hpp"
#include "laconic/cli/summary_argument.hpp"
#include "laconic/config/device.hpp"
#include "laconic/config/option.hpp"
#include "laconic/layout/grid_plan.hpp"

namespace laconic {

namespace {

void add_model(CLI::App& verb, ModelArguments& model) {
  verb.add_option(
          "MODEL", model.path,
          "checkpoint, run folder (its newest checkpoint), RUN/best, or Hugging Face folder "
          "(GPT-2, Llama, Mistral, Qwen, BERT)")
      ->required();
  verb.add_option("--device", model.device, "where tensors live; cuda:N is GPU N, cuda the first")
      ->check(CLI::Validator(
          [](const std::string& word) {
            return parse_device(word) ? "" : word + " is none of cpu, cuda, cuda:0, cuda:1, ...";
          },
          fmt::format("{{{}}}", fmt::join(device_words(), ","))))
      ->capture_default_str();
  verb.add_option("--dtype", model.dtype, "of the arithmetic")
      ->check(CLI::IsMember(names_in(kRunPrecisionNames)))
      ->capture_default_str();
  verb.add_option("--threads", model.threads,
                  "compute threads of a process; 0: one per available core")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  auto* tp = verb.add_option("--tp", model.tp,
                             "hold the model on a tensor grid of so many processes, or of these "
                             "sizes along its three axes, as 2,2,2; default: one process")
                 ->type_name("N|I,J,L");
  verb.add_option("--method", model.method, "how the grid cuts; default: 3d")
      ->check(CLI::IsMember(names_in(kTensorMethodNames)))
      ->needs(tp);
}

}  // namespace

RunConfig config_of(const ModelArguments& arguments) {
  RunConfig config;
  config.run.device = parse_device(arguments.device).value();
  config.run.precision = value_in(kRunPrecisionNames, arguments.dtype).value();
  config.run.threads = arguments.threads;
  config.model.start = arguments.path;
  if (!arguments.tp.empty()) config.mesh.tp = arguments.tp;
  if (!arguments.method.empty())
    config.tensor.method = *value_in(kTensorMethodNames, arguments.method);
  config.network.preflight = false;
  return config;
}

void add_words(CLI::App& verb, GenerateCommand& c) {
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
  verb.add_option("--seed", c.seed, "of the draws")->check(refuse_negative)->capture_default_str();
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

void add_words(CLI::App& verb, EvaluateCommand& command) {
  add_model(verb, command.model);
  verb.add_option("--data", command.data, "PREFIX of a prepared dataset")
      ->required()
      ->type_name("PREFIX");
  verb.add_option("--context", command.context, "tokens per sample; 0: as it was trained with")
      ->check(refuse_negative)
      ->capture_default_str();
  verb.add_option("--stride", command.stride,
                  "overlapping windows, which begin N tokens apart; each token is scored once; "
                  "0: --context, no overlap")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->capture_default_str();
  verb.add_option("--samples", command.samples, "how many; 0: all")
      ->check(refuse_negative)
      ->capture_default_str();
  verb.add_option("--batch", command.batch, "samples at a time")
      ->check(refuse_below_one)
      ->capture_default_str();
  verb.add_option("--beam", command.beam, "translations: hypotheses kept; 1: greedy")
      ->check(refuse_below_one)
      ->capture_default_str();
  add_summary(verb, command.json);
}

void add_words(CLI::App& verb, PredictCommand& command) {
  add_model(verb, command.model);
  verb.add_option(
          "--input", command.input,
          "lines of JSON: {\"text\"}, {\"text\", \"pair\"} or {\"ids\", \"types\", \"mask\"}; "
          "- is standard input")
      ->required()
      ->type_name("FILE");
  verb.add_option("--tokeniser,--tokenizer", command.tokeniser,
                  "folder or `bytes`; default: what lies beside the model")
      ->type_name("bytes|FOLDER");
  verb.add_option("--batch", command.batch, "lines at a time")
      ->check(refuse_below_one)
      ->capture_default_str();
  verb.add_option("--mask-id", command.mask,
                  "token id that hides others; default: the tokeniser's [MASK]")
      ->check(refuse_negative)
      ->type_name("ID");
  verb.add_option("--best", command.best, "guesses for each hidden token")
      ->check(refuse_below_one)
      ->capture_default_str();
  verb.add_option("--beam", command.beam, "translations: hypotheses kept; 1: greedy")
      ->check(refuse_below_one)
      ->capture_default_str();
  verb.add_option("--length-penalty", command.length_penalty,
                  "translations: log probability / length^PENALTY decides; 0: long ones lose")
      ->check(refuse_negative)
      ->capture_default_str();
  verb.add_option("--json", command.json, "write answers here; default: standard output")
      ->type_name("FILE");
}

void add_words(CLI::App& verb, ExportCommand& command) {
  verb.add_option("MODEL", command.model.path, "checkpoint, run folder, or Hugging Face folder")
      ->required();
  verb.add_option("FOLDER", command.folder, "to write; must not exist or be empty")->required();
  verb.add_option("--dtype", command.dtype, "of the weights")
      ->check(CLI::IsMember(names_in(kDtypeLongNames)))
      ->capture_default_str();
  verb.add_option("--shard-bytes", command.shard_bytes,
                  "split into files of at most N bytes; 0: one file")
      ->type_name("N");
}

}  // namespace laconic
