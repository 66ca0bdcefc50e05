#include "laconic/cli/model_command.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/checkpoint/resume.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/evaluate.hpp"
#include "laconic/train/generate.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

// A run folder stands for its newest good checkpoint, RUN/best for its best; anything else for
// itself.
std::string model_folder(const std::string& path) {
  if (!fs::exists(path) && fs::path(path).filename() == "best" &&
      fs::is_directory(fs::path(path).parent_path() / "checkpoints"))
    return model_folder(best_checkpoint((fs::path(path).parent_path() / "checkpoints").string()));
  if (!fs::exists(path))
    throw FileError(path, "", "does not exist",
                    "give a checkpoint, a run folder or a Hugging Face folder");
  if (fs::exists(path + "/config.json")) {
    if (is_checkpoint(path)) verify_checkpoint(path);
    return path;
  }
  std::vector<std::string> warnings;
  const std::string latest = find_latest_checkpoint(
      fs::is_directory(path + "/checkpoints") ? path + "/checkpoints" : path, warnings);
  for (const std::string& warning : warnings) fmt::print(stderr, "laconic: {}\n", warning);
  if (latest.empty()) throw FileError(path, "", "holds neither config.json nor a good checkpoint");
  return latest;
}

Weights load_model(const ModelArguments& arguments, const std::string& folder) {
  RunConfig config;
  config.run.device = value_in(kDeviceNames, arguments.device).value();
  config.run.dtype = value_in(kRunDtypeNames, arguments.dtype).value();
  if (arguments.threads > 0) at::set_num_threads(arguments.threads);
  return read_model(folder, tensor_options(config));
}

void write_json(const std::string& path, const nlohmann::ordered_json& json) {
  // Generated text may hold broken UTF-8, which JSON cannot.
  if (!path.empty())
    write_atomically(path,
                     json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

// The tokeniser for a model; none is fine when only ids go in and out.
std::optional<Tokeniser> find_tokeniser(const GenerateCommand& command, const std::string& folder) {
  if (!command.tokeniser.empty()) return load_tokeniser(command.tokeniser);
  if (has_tokeniser(folder)) return load_tokeniser(folder);
  if (command.prompt_ids.empty())
    throw ConfigError(fmt::format(
        "{} has no tokeniser beside it: give --tokeniser FOLDER, or --prompt-ids", folder));
  return std::nullopt;
}

std::vector<std::int64_t> prompt_of(const GenerateCommand& command,
                                    const std::optional<Tokeniser>& tokeniser,
                                    const Family& family) {
  std::vector<std::int64_t> ids = command.prompt_ids;
  if (ids.empty()) {
    const std::vector<std::int32_t> encoded = tokeniser->encode(command.prompt.value_or(""));
    ids.assign(encoded.begin(), encoded.end());
    if (ids.empty())
      ids.push_back(tokeniser->end_of_document());  // an empty text begins a document
  }
  Problems problems;
  for (const std::int64_t id : ids)
    if (id < 0 || id >= vocabulary_of(family))
      problems.push_back(
          {"prompt", fmt::format("token id {} is not in [0, {})", id, vocabulary_of(family))});
  refuse(problems);
  return ids;
}

std::string text_of(const std::optional<Tokeniser>& tokeniser,
                    const std::vector<std::int64_t>& ids) {
  if (!tokeniser) return {};
  std::vector<std::int32_t> known;  // a model may have more ids than its tokeniser
  for (const std::int64_t id : ids)
    if (id < tokeniser->vocabulary_size()) known.push_back(static_cast<std::int32_t>(id));
  return tokeniser->decode(known);
}

}  // namespace

int run_generate(const GenerateCommand& command) {
  const std::string folder = model_folder(command.model.path);
  const std::optional<Tokeniser> tokeniser = find_tokeniser(command, folder);
  const Weights weights = load_model(command.model, folder);
  GenerateRequest request{.prompt = prompt_of(command, tokeniser, weights.family),
                          .tokens = command.tokens,
                          .rule = {.temperature = command.greedy ? 0 : command.temperature,
                                   .top_k = command.top_k,
                                   .top_p = command.top_p},
                          .seed = static_cast<std::uint64_t>(command.seed)};
  if (command.stop_at_end && tokeniser) request.stop = tokeniser->end_of_document();
  if (command.prompt) fmt::print("{}", *command.prompt);
  const Stopwatch watch;
  const std::vector<std::int64_t> ids = generate(weights, request, [&](std::int64_t id) {
    fmt::print("{}", tokeniser ? text_of(tokeniser, {id}) : fmt::format("{} ", id));
    std::fflush(stdout);
  });
  const double seconds = watch.seconds();
  fmt::print("\n");
  if (command.show_ids) fmt::print("ids: {}\n", fmt::join(ids, ","));
  write_json(command.json, {{"command", "generate"},
                            {"model", folder},
                            {"prompt_ids", request.prompt},
                            {"ids", ids},
                            {"text", text_of(tokeniser, ids)},
                            {"seconds", seconds},
                            {"tokens_per_second", static_cast<double>(ids.size()) / seconds}});
  return 0;
}

int run_evaluate(const EvaluateCommand& command) {
  const std::string folder = model_folder(command.model.path);
  const Weights weights = load_model(command.model, folder);
  const std::int64_t context = command.context > 0 ? command.context : context_of(weights.family);
  if (context > context_of(weights.family))
    throw ConfigError(fmt::format("--context {} is more than the model's {} positions", context,
                                  context_of(weights.family)));
  const WindowedDataset data = open_dataset(command.data, context, vocabulary_of(weights.family));
  World alone;
  const std::vector<std::int32_t> bytes_of_token = token_bytes(command.data);
  const Evaluation e = evaluate(
      [&](const Batch& batch, std::uint64_t) { return forward_loss(weights, batch); }, data,
      {.task = data.has_prompts() ? Task(Completion{}) : Task(Causal{}),
       .samples = command.samples,
       .batch = command.batch,
       .device = weights.device(),
       .bytes_of_token = bytes_of_token},
      alone);
  fmt::print("{}: loss {:.6f} | perplexity {:.4f}{} | {} samples of {} tokens in {}\n", folder,
             e.loss, e.perplexity(),
             e.bits_per_byte ? fmt::format(" | {:.5f} bits/byte", *e.bits_per_byte) : "",
             with_commas(e.samples), context, human_seconds(e.seconds));
  nlohmann::ordered_json json = {{"command", "evaluate"},
                                 {"model", folder},
                                 {"data", command.data},
                                 {"samples", e.samples},
                                 {"tokens", e.tokens},
                                 {"loss", e.loss},
                                 {"perplexity", e.perplexity()},
                                 {"seconds", e.seconds},
                                 {"tokens_per_second", static_cast<double>(e.tokens) / e.seconds}};
  if (e.bits_per_byte) json["bits_per_byte"] = *e.bits_per_byte;
  write_json(command.json, json);
  return 0;
}

int run_export(const ExportCommand& command) {
  const std::string folder = model_folder(command.model.path);
  if (fs::exists(command.folder) && !fs::is_empty(command.folder))
    throw ConfigError(
        fmt::format("{} exists and is not empty: choose another folder", command.folder));
  ModelArguments arguments = command.model;
  arguments.dtype = name_in(kRunDtypeNames, Dtype::f64);  // holds every type exactly
  const Weights weights = load_model(arguments, folder);
  const Dtype dtype = value_in(kDtypeLongNames, command.dtype).value();
  fs::create_directories(command.folder);
  write_model(
      command.folder, weights,
      {.dtype = dtype, .max_shard_bytes = command.shard_bytes, .facts = read_folder_facts(folder)});
  if (has_tokeniser(folder)) load_tokeniser(folder).save(command.folder);
  fmt::print("wrote {} ({}, {} parameters)\n", command.folder, command.dtype,
             with_commas(parameter_count(weights.spec)));
  return 0;
}

}  // namespace laconic
