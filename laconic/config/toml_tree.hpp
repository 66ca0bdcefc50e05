// config/toml_tree.hpp — a TOML text as plain data, for readers of other files than configurations.
//
// Only config/ sees the parser, whose header is dear to compile. Every node knows where it stands,
// so that a reader can say it; entries of a table are in the order of the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "laconic/base/problem.hpp"

namespace laconic {

struct TomlNode {
  enum class Kind : std::uint8_t { table, list, text, integer, number, boolean, date };
  Kind kind = Kind::table;
  std::string where;  // "study.toml:12:3"
  // Of a text its letters; of another value what one would write.
  std::string text;
  double value = 0;                                       // of a number, or an integer
  std::vector<TomlNode> items;                            // of a list
  std::vector<std::pair<std::string, TomlNode>> entries;  // of a table

  const TomlNode* find(std::string_view key) const;  // null: there is no such entry
};

// "an integer", "the text 'abc'": for messages.
std::string describe(const TomlNode& node);

// "; did you mean 'layers'?", or the words that there are where none is near.
std::string suggestion(const std::string& word, const std::vector<std::string>& known);

// `name` stands in messages. Throws ConfigError with line and column.
TomlNode parse_toml_tree(std::string_view text, const std::string& name);

}  // namespace laconic
