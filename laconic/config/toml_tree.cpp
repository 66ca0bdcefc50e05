#include "laconic/config/toml_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

// As in read.cpp: some malformed dates would end the process.
#ifndef TOML_ASSERT
#define TOML_ASSERT(condition) static_assert(true)
#endif
#include <toml++/toml.h>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"

namespace laconic {

namespace {

std::string place_of(const std::string& name, const toml::source_region& source) {
  return fmt::format("{}:{}:{}", name, source.begin.line, source.begin.column);
}

TomlNode tree_of(const toml::node& node, const std::string& name);

void add_entries(const toml::table& table, const std::string& name, TomlNode& tree) {
  struct Entry {
    toml::source_position at;
    std::string key;
    const toml::node* node;
  };
  std::vector<Entry> sorted;
  for (const auto& [key, node] : table)
    sorted.push_back({key.source().begin, std::string(key.str()), &node});
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Entry& a, const Entry& b) { return a.at < b.at; });
  for (const Entry& entry : sorted) {
    tree.entries.emplace_back(entry.key, tree_of(*entry.node, name));
    // A table that dotted keys make has no place of its own.
    if (entry.node->source().begin.line == 0)
      tree.entries.back().second.where =
          fmt::format("{}:{}:{}", name, entry.at.line, entry.at.column);
  }
}

TomlNode tree_of(const toml::node& node, const std::string& name) {
  using Kind = TomlNode::Kind;
  TomlNode tree{.where = place_of(name, node.source())};
  if (const toml::table* table = node.as_table()) {
    add_entries(*table, name, tree);
  } else if (const toml::array* list = node.as_array()) {
    tree.kind = Kind::list;
    for (const toml::node& item : *list) tree.items.push_back(tree_of(item, name));
  } else if (const auto text = node.value_exact<std::string>()) {
    tree.kind = Kind::text;
    tree.text = *text;
  } else if (const auto whole = node.value_exact<std::int64_t>()) {
    tree.kind = Kind::integer;
    tree.value = static_cast<double>(*whole);
    tree.text = std::to_string(*whole);
  } else if (const auto number = node.value_exact<double>()) {
    tree.kind = Kind::number;
    tree.value = *number;
    tree.text = fmt::format("{}", *number);
  } else if (const auto boolean = node.value_exact<bool>()) {
    tree.kind = Kind::boolean;
    tree.text = *boolean ? "true" : "false";
  } else {
    tree.kind = Kind::date;
  }
  return tree;
}

}  // namespace

const TomlNode* TomlNode::find(std::string_view key) const {
  for (const auto& [name, node] : entries)
    if (name == key) return &node;
  return nullptr;
}

std::string describe(const TomlNode& node) {
  switch (node.kind) {
    case TomlNode::Kind::table: return "a table";
    case TomlNode::Kind::list: return "a list";
    case TomlNode::Kind::text: return fmt::format("the text '{}'", printable(node.text));
    case TomlNode::Kind::date: return "a date";
    default: return node.text;
  }
}

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const std::string likely = nearest(word, known);
  if (!likely.empty()) return fmt::format("; did you mean '{}'?", likely);
  return fmt::format(" (known: {})", join(known, ", "));
}

TomlNode parse_toml_tree(std::string_view text, const std::string& name) {
  try {
    return tree_of(toml::parse(text, name), name);
  } catch (const toml::parse_error& error) {
    throw ConfigError(Problems{{place_of(name, error.source()), std::string(error.description())}});
  }
}

}  // namespace laconic
