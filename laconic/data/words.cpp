#include "laconic/data/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "laconic/base/error.hpp"
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

std::vector<bool> continuing_tokens(const std::string& folder) {
  const std::string path = folder + "/vocab.txt";
  if (!std::filesystem::exists(path))
    throw ConfigError(
        fmt::format("task.whole_words = true, but there is no {}: only the tokens of "
                    "a WordPiece vocabulary say which of them continue a word",
                    path));
  return continuing_lines(MappedFile(path).text());
}

}  // namespace laconic
