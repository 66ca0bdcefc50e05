#include "laconic/data/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/file/json.hpp"
#include "laconic/file/mapped_file.hpp"

namespace laconic {

std::vector<bool> continuing_lines(std::string_view vocabulary) {
  std::vector<bool> continues;
  while (!vocabulary.empty()) {
    const std::size_t end = std::min(vocabulary.find('\n'), vocabulary.size());
    continues.push_back(vocabulary.substr(0, end).starts_with("##"));
    vocabulary.remove_prefix(std::min(end + 1, vocabulary.size()));
  }
  return continues;
}

namespace {

// Of tokenizer.json, where it holds a WordPiece vocabulary; else empty.
std::vector<bool> continuing_in_json(const std::string& path) {
  const nlohmann::json json = read_json(path);
  const nlohmann::json model = json.value("model", nlohmann::json::object());
  if (!model.is_object() || model.value("type", nlohmann::json()) != "WordPiece") return {};
  const std::string mark = model.value("continuing_subword_prefix", "##");
  std::vector<bool> continues;
  for (const auto& [token, id] : model.at("vocab").items()) {
    const auto place = id.get<std::size_t>();
    if (continues.size() <= place) continues.resize(place + 1);
    continues[place] = token.starts_with(mark);
  }
  return continues;
}

}  // namespace

std::vector<bool> continuing_tokens(const std::string& folder) {
  const std::string lines = folder + "/vocab.txt", json = folder + "/tokenizer.json";
  std::vector<bool> continues;
  if (std::filesystem::exists(lines))
    continues = continuing_lines(MappedFile(lines).text());
  else if (std::filesystem::exists(json) &&
           load_tokeniser(folder).kind() == TokeniserKind::wordpiece)
    continues = continuing_in_json(json);
  if (continues.empty())
    throw ConfigError(
        fmt::format("task.whole_words = true, but {} holds no WordPiece vocabulary "
                    "(vocab.txt or tokenizer.json): only its tokens say which of "
                    "them continue a word",
                    folder));
  return continues;
}

}  // namespace laconic
