#include "laconic/cli/model_command.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/model_folder.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/train/generate.hpp"
#include "laconic/train/stop_text.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

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
                                    const std::optional<std::string>& prompt,
                                    const std::optional<Tokeniser>& tokeniser,
                                    const Family& family) {
  std::vector<std::int64_t> ids = command.prompt_ids;
  if (ids.empty()) {
    const std::vector<std::int32_t> encoded = tokeniser->encode(prompt.value_or(""));
    ids.assign(encoded.begin(), encoded.end());
    // Llama's texts begin with a token of their own, those of others with the end of the one
    // before.
    const std::int64_t begin = tokeniser->special().bos;
    if (std::holds_alternative<LlamaShape>(family) && begin >= 0 &&
        begin != tokeniser->special().eos)
      ids.insert(ids.begin(), begin);
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

// What a token adds to the text; nothing where a model has more ids than its tokeniser.
std::string text_of(const Tokeniser& tokeniser, std::int64_t id) {
  if (id >= tokeniser.vocabulary_size()) return {};
  return tokeniser.text_behind(static_cast<std::int32_t>(id));
}

// One continuation of a prompt.
struct GeneratedSample {
  std::vector<std::int64_t> prompt;
  std::uint64_t seed = 0;
  std::vector<std::int64_t> ids;
  std::string text;           // without the stop string that ended it
  std::string_view ended_by;  // "length", "end" or "stop"
};

nlohmann::ordered_json to_json(const GeneratedSample& sample) {
  return {{"seed", sample.seed},
          {"prompt_ids", sample.prompt},
          {"ids", sample.ids},
          {"text", sample.text},
          {"ended_by", sample.ended_by}};
}

// Continues prompts with one model, printing as it goes.
class Writer {
 public:
  Writer(const GenerateCommand& command, const UsedModel& model)
      : command_(command), model_(model), tokeniser_(find_tokeniser(command, model.folder)) {
    Problems problems;
    for (const std::string& stop : command.stops)
      if (stop.empty()) problems.push_back({"--stop", "is empty"});
    if (!command.stops.empty() && !tokeniser_)
      problems.push_back({"--stop", "needs a tokeniser, to know the text: give --tokeniser"});
    if (command.samples > 1 && (command.greedy || command.temperature == 0))
      problems.push_back(
          {"--samples", fmt::format("{} greedy texts would all be the same one", command.samples)});
    refuse(problems);
  }

  void write_prompts() {
    if (!command_.reads_stdin) return write_samples(command_.prompt);
    if (command_.is_one_prompt) return write_samples(read_all());
    while (const std::optional<std::string> line = read_line()) write_samples(line);
    if (prompts_ == 0) throw ConfigError("--stdin: standard input has no line with a prompt");
  }

  nlohmann::ordered_json summary() const {
    // What the first sample was is also said on top, where it was before there were several.
    nlohmann::ordered_json samples = nlohmann::ordered_json::array();
    std::size_t tokens = 0;
    for (const GeneratedSample& sample : samples_) {
      samples.push_back(to_json(sample));
      tokens += sample.ids.size();
    }
    return {{"command", "generate"},
            {"model", model_.folder},
            {"prompt_ids", samples_.front().prompt},
            {"ids", samples_.front().ids},
            {"text", samples_.front().text},
            {"samples", samples},
            {"seconds", seconds_},
            {"tokens_per_second", static_cast<double>(tokens) / seconds_}};
  }

 private:
  // On a grid rank 0 reads for all: no other has our standard input.
  std::string read_all() const {
    return model_.ranks.world->decide_on_rank_0([] {
      std::string all{std::istreambuf_iterator<char>(std::cin), {}};
      if (all.ends_with('\n')) all.pop_back();
      return all;
    });
  }

  // The next line that is not blank; none at the end.
  std::optional<std::string> read_line() const {
    const std::string line = model_.ranks.world->decide_on_rank_0([] {
      for (std::string next; std::getline(std::cin, next);)
        if (!trim(next).empty()) return next;
      return std::string();
    });
    return line.empty() ? std::nullopt : std::optional(line);
  }

  // Rank 0 does.
  void say(const std::string& text) const {
    if (!model_.ranks.is_first()) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  void write_samples(const std::optional<std::string>& prompt) {
    ++prompts_;
    const std::vector<std::int64_t> ids =
        prompt_of(command_, prompt, tokeniser_, model_.weights.family);
    for (std::int64_t i = 0; i < command_.samples; ++i) {
      const std::uint64_t seed = static_cast<std::uint64_t>(command_.seed + i);
      const bool has_many_prompts = command_.reads_stdin && !command_.is_one_prompt;
      if (has_many_prompts || command_.samples > 1)
        say(fmt::format("--- {}sample {} of {}, seed {} ---\n",
                        has_many_prompts ? fmt::format("prompt {}, ", prompts_) : "", i + 1,
                        command_.samples, seed));
      say(prompt.value_or(""));
      write_sample(ids, seed);
    }
  }

  void write_sample(const std::vector<std::int64_t>& prompt, std::uint64_t seed) {
    GenerateRequest request{.prompt = prompt,
                            .tokens = command_.tokens,
                            .rule = {.temperature = command_.greedy ? 0 : command_.temperature,
                                     .top_k = command_.top_k,
                                     .top_p = command_.top_p},
                            .seed = seed};
    if (command_.stop_at_end && tokeniser_) request.stop = tokeniser_->end_of_document();
    GeneratedSample sample{.prompt = prompt, .seed = seed};
    StopText stop(command_.stops);
    const auto show = [&](const std::string& text) {
      if (tokeniser_) sample.text += text;
      say(text);
    };
    const Stopwatch watch;
    sample.ids = generate(
        model_.weights, request,
        [&](std::int64_t id) {
          show(tokeniser_ ? stop.add(text_of(*tokeniser_, id)) : fmt::format("{} ", id));
          return !stop.is_stopped();
        },
        model_.ranks);
    seconds_ += watch.seconds();
    show(stop.finish());
    const bool is_full = static_cast<std::int64_t>(sample.ids.size()) == command_.tokens;
    sample.ended_by = stop.is_stopped() ? "stop" : is_full ? "length" : "end";
    say("\n");
    if (command_.show_ids) say(fmt::format("ids: {}\n", fmt::join(sample.ids, ",")));
    samples_.push_back(std::move(sample));
  }

  const GenerateCommand& command_;
  const UsedModel& model_;
  std::optional<Tokeniser> tokeniser_;
  std::vector<GeneratedSample> samples_;
  std::int64_t prompts_ = 0;
  double seconds_ = 0;
};

}  // namespace

int run_generate(const GenerateCommand& command) {
  with_model(command.model, [&](const UsedModel& model) {
    Writer writer(command, model);
    writer.write_prompts();
    write_json(command.json, writer.summary(), model.ranks);
  });
  return 0;
}

namespace {

void export_model(const ExportCommand& command, const UsedModel& model) {
  const Dtype dtype = value_in(kDtypeLongNames, command.dtype).value();
  fs::create_directories(command.folder);
  write_model(command.folder, model.weights,
              {.dtype = dtype,
               .max_shard_bytes = command.shard_bytes,
               .facts = read_folder_facts(model.folder)});
  if (has_tokeniser(model.folder)) load_tokeniser(model.folder).save(command.folder);
  fmt::print("wrote {} ({}, {} parameters)\n", command.folder, command.dtype,
             with_commas(parameter_count(model.weights.spec)));
  if (!model.weights.spec.projections.empty())
    fmt::print(
        "its boundaries are projected, which no other program computes: config.json says so by its "
        "model_type, and only Laconic reads this folder\n");
}

}  // namespace

int run_export(const ExportCommand& command) {
  if (fs::exists(command.folder) && !fs::is_empty(command.folder))
    throw ConfigError(
        fmt::format("{} exists and is not empty: choose another folder", command.folder));
  ModelArguments arguments = command.model;
  arguments.dtype = name_in(kRunPrecisionNames, RunPrecision::float64);  // holds every type exactly
  with_model(arguments, [&](const UsedModel& model) { export_model(command, model); });
  return 0;
}

}  // namespace laconic
