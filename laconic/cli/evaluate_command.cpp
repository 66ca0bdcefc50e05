#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/checkpoint/checkpoint.hpp"
#include "laconic/cli/model_command.hpp"
#include "laconic/cli/model_folder.hpp"
#include "laconic/config/model_family.hpp"
#include "laconic/config/read.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/evaluate.hpp"
#include "laconic/train/validation_bleu.hpp"

namespace laconic {

namespace {

// The dataset as this model's task sees it.
struct OpenedData {
  RunConfig config;
  Dataset data;
  Task task;
};

// What a checkpoint's run was told, else the defaults: task, seed of masks, length of samples. A
// folder of Hugging Face may have room for more tokens than anybody wants in a sample.
constexpr std::int64_t kMostTokensUnasked = 2048;

RunConfig config_for(const Weights& weights, const std::string& folder) {
  RunConfig config;
  config.task = task_for(weights.family);
  config.model.context = std::min(context_of(weights.family), kMostTokensUnasked);
  if (is_checkpoint(folder)) {
    RunConfig run;
    apply_toml(read_checkpoint_info(folder).config_toml, folder, run);
    config.model.context = std::min(context_of(weights.family), run.model.context);
    config.run.seed = run.run.seed;
    if (run.task.kind == config.task.kind) config.task = run.task;
  }
  if (!is_causal(weights.family)) config.task.pad = Padding::longest;
  return config;
}

OpenedData open_for(const Weights& weights, const EvaluateCommand& command, RunConfig config) {
  const std::int64_t context = config.model.context;
  Dataset data = open_dataset(command.data, context, vocabulary_of(weights.family), command.stride,
                              sample_kind_of(config));
  refuse(check_labels(weights.family, data, command.data));
  Task task = task_of(config, data);
  return {std::move(config), std::move(data), std::move(task)};
}

// Translates all samples, and compares with what the data has.
Bleu measure_bleu(const UsedModel& model, const OpenedData& opened, const EvaluateCommand& command,
                  std::int64_t samples) {
  const std::string folder = tokeniser_folder_of(command.data);
  if (!has_tokeniser(folder))
    throw FileError(folder, "", "does not exist", "BLEU needs the tokeniser of the data");
  const TranslationRule rule = translation_rule(opened.data, command.beam);
  TokenLists translations;
  for (std::int64_t first = 0; first < samples; first += command.batch) {
    const std::int64_t end = std::min(first + command.batch, samples);
    for (Translation& t :
         translate(model.weights, sources_of(opened.data, first, end), rule, model.ranks))
      translations.push_back(std::move(t.ids));
  }
  return bleu_of(opened.data, load_tokeniser(folder), translations);
}

void evaluate_model(const EvaluateCommand& command, const UsedModel& model) {
  const std::string& folder = model.folder;
  const Weights& weights = model.weights;
  RunConfig config = config_for(weights, folder);
  const std::int64_t context = command.context > 0 ? command.context : config.model.context;
  config.model.context = context;
  if (context > context_of(weights.family))
    throw ConfigError(fmt::format("--context {} is more than the model's {} positions", context,
                                  context_of(weights.family)));
  if (command.stride > context)
    throw ConfigError(
        fmt::format("--stride {} is more than --context {}: some tokens would never "
                    "be scored",
                    command.stride, context));
  if (command.stride > 0 && !is_causal(weights.family))
    throw ConfigError("--stride: windows overlap only where the next token is asked for");
  const OpenedData opened = open_for(weights, command, config);
  const std::vector<std::int32_t> bytes_of_token = token_bytes(command.data);
  const Evaluation e = evaluate(
      [&](const Batch& batch, std::uint64_t, Pass pass) {
        pass.grid = model.ranks.grid;
        return forward_loss(weights, batch, pass);
      },
      opened.data,
      {.task = opened.task,
       .samples = command.samples,
       .batch = command.batch,
       .device = weights.device(),
       .bytes_of_token = bytes_of_token},
      *model.ranks.world);
  std::string numbers;
  if (e.has_perplexity) numbers += fmt::format(" | perplexity {:.4f}", e.perplexity());
  if (e.bits_per_byte) numbers += fmt::format(" | {:.5f} bits/byte", *e.bits_per_byte);
  for (const auto& [name, value] : e.metrics) numbers += fmt::format(" | {} {:.4f}", name, value);
  if (model.ranks.is_first())
    fmt::print("{}: loss {:.6f}{} | {} samples of {} tokens{} in {}\n", folder, e.loss, numbers,
               with_commas(e.samples), context,
               command.stride > 0 ? fmt::format(", stride {}", command.stride) : "",
               human_seconds(e.seconds));
  nlohmann::ordered_json json = {{"command", "evaluate"},
                                 {"model", folder},
                                 {"data", command.data},
                                 {"context", context},
                                 {"stride", command.stride > 0 ? command.stride : context},
                                 {"samples", e.samples},
                                 {"tokens", e.tokens},
                                 {"loss", e.loss},
                                 {"seconds", e.seconds},
                                 {"tokens_per_second", static_cast<double>(e.tokens) / e.seconds}};
  if (e.has_perplexity) json["perplexity"] = e.perplexity();
  if (e.bits_per_byte) json["bits_per_byte"] = *e.bits_per_byte;
  for (const auto& [name, value] : e.metrics) json["metrics"][name] = value;
  if (std::holds_alternative<Translate>(opened.task)) {
    const Bleu score = measure_bleu(model, opened, command, e.samples);
    if (model.ranks.is_first()) fmt::print("{}\n", to_text(score));
    json["metrics"]["bleu"] = score.score;
    json["bleu_signature"] = bleu_signature(std::vector<std::vector<std::string>>(1, {""}));
  }
  write_json(command.json, json, model.ranks);
}

}  // namespace

int run_evaluate(const EvaluateCommand& command) {
  with_model(command.model, [&](const UsedModel& model) { evaluate_model(command, model); });
  return 0;
}

}  // namespace laconic
