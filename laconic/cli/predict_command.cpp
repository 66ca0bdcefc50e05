// `laconic predict`: a line of JSON in, a line of JSON out.
//
//   {"text": ...}                       classes, a number, hidden tokens, translation, log
//   probability
//   {"text": ..., "pair": ...}          a BERT's two texts; for a span "text" is the question
//   {"ids": [...], "types": [...], "mask": [...]}   tokens as they are; where the mask is 0 is
//   padding
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/model_command.hpp"
#include "laconic/cli/model_folder.hpp"
#include "laconic/data/pair.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/json.hpp"
#include "laconic/model/hugging_face.hpp"
#include "laconic/train/predict.hpp"

namespace laconic {

namespace {

using Json = nlohmann::ordered_json;

class Predictor {
 public:
  Predictor(const PredictCommand& command, const UsedModel& model)
      : weights_(model.weights), ranks_(model.ranks), facts_(read_folder_facts(model.folder)) {
    if (!command.tokeniser.empty())
      tokeniser_ = load_tokeniser(command.tokeniser);
    else if (has_tokeniser(model.folder))
      tokeniser_ = load_tokeniser(model.folder);
    rule_.best = command.best;
    rule_.translation.beam = command.beam;
    rule_.translation.length_penalty = command.length_penalty;
    const SpecialTokens special = tokeniser_ ? tokeniser_->special() : SpecialTokens();
    rule_.mask = command.mask >= 0 ? command.mask : special.mask;
    const bool has_eos = special.eos >= 0;
    end_ = tokeniser_ ? (has_eos ? special.eos : special.sep) : facts_.end_of_text;
    const std::int64_t begin =
        tokeniser_ ? (has_eos ? special.bos : special.cls) : facts_.begin_of_text;
    rule_.translation.end = end_;
    rule_.translation.begin = begin >= 0 ? begin : end_;
  }

  // Reads all lines before the first answer: a mistake in the last costs nothing then.
  std::vector<PredictInput> read(const std::string& lines, const std::string& name) const {
    std::vector<PredictInput> questions;
    Problems problems;
    std::istringstream in(lines);
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      if (trim(line).empty()) continue;
      const std::string where = fmt::format("{}:{}", name, number);
      questions.push_back(question_of(parse_json(line, where, "a line is one JSON object"), where));
      for (Problem& problem : check(weights_, questions.back()))
        problems.push_back({where + ": " + problem.where, std::move(problem.what)});
    }
    if (questions.empty()) problems.push_back({name, "has no line"});
    refuse(std::move(problems));
    return questions;
  }

  // Nothing where another rank has the answers.
  std::vector<Json> answer(const std::vector<PredictInput>& questions) const {
    const std::vector<ModelAnswer> predictions = predict(weights_, questions, rule_, ranks_);
    std::vector<Json> answers;
    for (std::size_t i = 0; i < predictions.size(); ++i)
      answers.push_back(to_json(questions[i], predictions[i]));
    return answers;
  }

 private:
  bool is_bert() const { return std::holds_alternative<BertShape>(weights_.family); }
  bool has_head(BertHead head) const {
    const auto* bert = std::get_if<BertShape>(&weights_.family);
    return bert != nullptr && bert->head == head;
  }
  bool finds_words() const { return has_head(BertHead::masked) || has_head(BertHead::pretraining); }

  PredictInput question_of(const nlohmann::json& json, const std::string& where) const {
    if (!json.is_object()) throw FileError(where, "", "not a JSON object");
    if (json.contains("ids")) return question_of_ids(json, where);
    const auto text_under = [&](const char* key) {
      if (!json[key].is_string()) throw FileError(where, key, "is not a text");
      return json[key].get<std::string>();
    };
    if (!json.contains("text"))
      throw FileError(where, "text", "is missing", "a line has \"text\", or \"ids\"");
    if (!tokeniser_)
      throw FileError(where, "text", "needs a tokeniser, and none lies beside the model",
                      "give --tokeniser FOLDER, or \"ids\"");
    const std::vector<std::int64_t> first = encoded(text_under("text"));
    if (!is_bert() && json.contains("pair"))
      throw FileError(where, "pair", "only a BERT takes two texts");
    if (!is_bert()) return {.ids = framed(first)};
    const bool has_second = json.contains("pair");
    return pair_of(first, has_second ? encoded(text_under("pair")) : std::vector<std::int64_t>(),
                   has_second);
  }

  PredictInput question_of_ids(const nlohmann::json& json, const std::string& where) const {
    const auto numbers_under = [&](const char* key) -> std::vector<std::int64_t> {
      if (!json.contains(key)) return {};
      const auto is_whole = [](const nlohmann::json& n) { return n.is_number_integer(); };
      if (!json[key].is_array() || !std::ranges::all_of(json[key], is_whole))
        throw FileError(where, key, "is not a list of whole numbers");
      return json[key].get<std::vector<std::int64_t>>();
    };
    PredictInput question{.ids = numbers_under("ids"), .types = numbers_under("types")};
    const std::vector<std::int64_t> mask = numbers_under("mask");
    const auto types = question.types.size();
    if (types != 0 && types != question.ids.size())
      throw FileError(where, "types",
                      fmt::format("{} types for {} ids", types, question.ids.size()));
    if (mask.empty()) return question;
    // Padding may only follow what is there.
    const auto end = std::ranges::find(mask, 0);
    if (mask.size() != question.ids.size() ||
        std::any_of(end, mask.end(), [](auto m) { return m != 0; }))
      throw FileError(
          where, "mask",
          fmt::format("{} numbers for {} ids: ones, then zeros", mask.size(), question.ids.size()));
    const auto length = static_cast<std::size_t>(end - mask.begin());
    question.ids.resize(length);
    if (!question.types.empty()) question.types.resize(length);
    return question;
  }

  // Where "[MASK]", or what the tokeniser calls it, stands in a text, a token is hidden: tokenisers
  // do not make special tokens from text, but here that is what is asked.
  std::vector<std::int64_t> encoded(std::string_view text) const {
    std::vector<std::int32_t> ids;
    if (finds_words() && rule_.mask >= 0 && rule_.mask < tokeniser_->vocabulary_size()) {
      const auto mask = static_cast<std::int32_t>(rule_.mask);
      const std::string name = tokeniser_->decode({&mask, 1});
      for (std::size_t at; !name.empty() && (at = text.find(name)) != std::string_view::npos;) {
        tokeniser_->encode(text.substr(0, at), ids);
        ids.push_back(mask);
        text.remove_prefix(at + name.size());
      }
    }
    tokeniser_->encode(text, ids);
    return {ids.begin(), ids.end()};
  }

  // A source ends with the end of a text; what is scored token by token begins after one.
  std::vector<std::int64_t> framed(std::vector<std::int64_t> ids) const {
    if (translates(weights_.family)) {
      ids.push_back(end_);
    } else if (ids.empty() || ids.front() != rule_.translation.begin) {
      ids.insert(ids.begin(), rule_.translation.begin);
    }
    return ids;
  }

  // [CLS] first [SEP] second [SEP], the longer cut first where both do not fit.
  PredictInput pair_of(const std::vector<std::int64_t>& first,
                       const std::vector<std::int64_t>& second, bool has_second) const {
    const auto context = static_cast<std::size_t>(context_of(weights_.family));
    const std::size_t frame = has_second ? 3 : 2;
    if (context <= frame)
      throw ConfigError(
          fmt::format("this model has {} positions, which is too few for a text", context));
    PairSizes sizes = truncate_longest_first({first.size(), second.size()}, context - frame);
    if (has_head(BertHead::span)) {  // as in training, only what holds the answer is cut
      sizes.first = std::min(first.size(), context - frame);
      sizes.second = std::min(second.size(), context - frame - sizes.first);
    }
    const std::size_t length = sizes.first + sizes.second + frame;
    PredictInput question{std::vector<std::int64_t>(length), std::vector<std::int64_t>(length)};
    frame_texts(tokeniser_->special(), std::span(first).first(sizes.first),
                std::span(second).first(sizes.second), has_second, question.ids, question.types);
    return question;
  }

  std::string decoded(std::span<const std::int64_t> ids) const {
    std::vector<std::int32_t> known;
    for (const std::int64_t id : ids)
      if (id < tokeniser_->vocabulary_size()) known.push_back(static_cast<std::int32_t>(id));
    return tokeniser_->decode(known);
  }

  Json to_json(const PredictInput& question, const ModelAnswer& p) const {
    if (translates(weights_.family)) {
      Json json = {{"ids", p.ids}, {"log_probability", p.log_probability}};
      if (tokeniser_) json["translation"] = decoded(p.ids);
      return json;
    }
    const auto* bert = std::get_if<BertShape>(&weights_.family);
    if (bert == nullptr)
      return {{"log_probability", p.log_probability}, {"log_probabilities", p.log_probabilities}};
    switch (bert->head) {
      case BertHead::classify: {
        const auto best = std::ranges::max_element(p.logits) - p.logits.begin();
        const auto place = static_cast<std::size_t>(best);
        Json json = {{"class", best}, {"logits", p.logits}};
        if (place < facts_.label_names.size()) json["label"] = facts_.label_names[place];
        return json;
      }
      case BertHead::regress: return {{"score", p.logits.front()}};
      case BertHead::span: {
        const auto first = static_cast<std::size_t>(p.begin);
        const std::span<const std::int64_t> ids = question.ids;
        Json json = {{"start", p.begin}, {"end", p.end}, {"log_probability", p.log_probability}};
        if (tokeniser_)
          json["answer"] = decoded(ids.subspan(first, static_cast<std::size_t>(p.end) + 1 - first));
        return json;
      }
      case BertHead::masked:
      case BertHead::pretraining: break;
    }
    Json json = {{"guesses", Json::array()}};
    for (const Guess& guess : p.guesses) {
      Json best = Json::array();
      for (const auto& [id, log_p] : guess.best) {
        Json row = {{"id", id}, {"log_probability", log_p}};
        if (tokeniser_) row["token"] = decoded(std::span(&id, 1));
        best.push_back(std::move(row));
      }
      json["guesses"].push_back({{"position", guess.position}, {"best", std::move(best)}});
    }
    return json;
  }

  const Weights& weights_;
  const ModelRanks ranks_;
  FolderFacts facts_;
  std::optional<Tokeniser> tokeniser_;
  PredictRule rule_;
  std::int64_t end_ = -1;
};

// All of it. On a grid rank 0 reads for all: no other has our standard input.
std::string read_input(const PredictCommand& command, World& world) {
  return world.decide_on_rank_0([&] {
    if (command.input == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
    std::ifstream file(command.input);
    if (!file) throw FileError(command.input, "", "cannot be read");
    return std::string(std::istreambuf_iterator<char>(file), {});
  });
}

void answer_all(const PredictCommand& command, const UsedModel& model) {
  const Predictor predictor(command, model);
  const std::vector<PredictInput> questions =
      predictor.read(read_input(command, *model.ranks.world),
                     command.input == "-" ? "standard input" : command.input);
  std::string lines;
  const auto step = static_cast<std::size_t>(command.batch);
  for (std::size_t first = 0; first < questions.size(); first += step) {
    const auto begin = questions.begin() + static_cast<std::ptrdiff_t>(first);
    const auto count = std::min(step, questions.size() - first);
    for (const Json& json : predictor.answer({begin, begin + static_cast<std::ptrdiff_t>(count)})) {
      const std::string line =
          json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
      if (command.json.empty())
        std::cout << line << std::flush;
      else
        lines += line;
    }
  }
  if (command.json.empty() || !model.ranks.is_first()) return;
  write_atomically(command.json, lines);
  fmt::print("{} answers in {}\n", questions.size(), command.json);
}

}  // namespace

int run_predict(const PredictCommand& command) {
  with_model(command.model, [&](const UsedModel& model) { answer_all(command, model); });
  return 0;
}

}  // namespace laconic
