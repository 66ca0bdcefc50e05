// config/toml_table.hpp — one table of a TOML file, key by key.
//
// A reader asks for every key that there may be; what is left then is unknown, and is told with the
// nearest of those. Nothing is thrown: problems gather, each with its line.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "laconic/base/problem.hpp"
#include "laconic/config/toml_tree.hpp"

namespace laconic {

class TomlTable {
 public:
  // `what` stands in messages.
  TomlTable(const TomlNode& table, std::string what, Problems& problems)
      : table_(table), what_(std::move(what)), problems_(problems) {
    if (table.kind != TomlNode::Kind::table)
      report(table, fmt::format("must be a table, not {}", describe(table)));
  }

  // Null where the file does not say it.
  const TomlNode* find(const char* key) {
    known_.emplace_back(key);
    return table_.find(key);
  }
  void report(const TomlNode& node, const std::string& text) {
    problems_.push_back({node.where, fmt::format("{}: {}", what_, text)});
  }
  void report_wrong(const TomlNode& node, const std::string& key, const char* wanted) {
    report(node, fmt::format("{} must be {}, not {}", key, wanted, describe(node)));
  }

  void read(const char* key, std::string& value) {
    const TomlNode* node = find(key);
    if (node == nullptr) return;
    if (node->kind == TomlNode::Kind::text)
      value = node->text;
    else
      report_wrong(*node, key, "a text in quotes");
  }
  void require(const char* key, std::string& value) {
    if (table_.find(key) == nullptr) report(table_, fmt::format("{} is missing", key));
    read(key, value);
  }
  template <class Integer>
  void read_count(const char* key, Integer& value, double least) {
    const TomlNode* node = find(key);
    if (node == nullptr) return;
    if (node->kind == TomlNode::Kind::integer && node->value >= least && node->value < 1e9)
      value = static_cast<Integer>(node->value);
    else
      report_wrong(*node, key, least > 0 ? "a whole number above 0" : "a whole number from 0 on");
  }
  void read_number(const char* key, double& value) {
    const TomlNode* node = find(key);
    if (node == nullptr) return;
    if (is_number(*node))
      value = node->value;
    else
      report_wrong(*node, key, "a number");
  }
  void read_flag(const char* key, bool& value) {
    const TomlNode* node = find(key);
    if (node == nullptr) return;
    if (node->kind == TomlNode::Kind::boolean)
      value = node->text == "true";
    else
      report_wrong(*node, key, "true or false");
  }
  // A text alone is a list of one.
  void read_names(const char* key, std::vector<std::string>& value) {
    if (const TomlNode* node = find(key)) value = names_in(*node, key);
  }
  std::vector<std::string> names_in(const TomlNode& node, const std::string& key) {
    if (node.kind == TomlNode::Kind::text) return {node.text};
    std::vector<std::string> names;
    if (node.kind != TomlNode::Kind::list) report_wrong(node, key, "a text or a list of texts");
    for (const TomlNode& item : node.items)
      if (item.kind == TomlNode::Kind::text)
        names.push_back(item.text);
      else
        report_wrong(item, key, "a list of texts");
    return names;
  }
  template <class Read>
  void each(const char* key, const Read& read) {
    const TomlNode* node = find(key);
    if (node == nullptr) return;
    if (node->kind == TomlNode::Kind::list)
      for (const TomlNode& item : node->items) read(item);
    else
      report_wrong(*node, key, fmt::format("a list of tables, [[{}]]", key).c_str());
  }
  void report_unknown() {
    for (const auto& [key, node] : table_.entries)
      if (std::find(known_.begin(), known_.end(), key) == known_.end())
        report(node, fmt::format("unknown key '{}'{}", key, suggestion(key, known_)));
  }

 private:
  static bool is_number(const TomlNode& node) {
    return node.kind == TomlNode::Kind::number || node.kind == TomlNode::Kind::integer;
  }

  const TomlNode& table_;
  std::string what_;
  Problems& problems_;
  std::vector<std::string> known_;
};

}  // namespace laconic
