// study/study_table.hpp — one table of a study file: what only studies have in theirs.
#pragma once

#include <string>
#include <vector>

#include "laconic/config/toml_table.hpp"
#include "laconic/study/study_file.hpp"

namespace laconic {

class StudyTable : public TomlTable {
 public:
  using TomlTable::TomlTable;

  // Dotted keys are tables in tables, whose names are put together again.
  void read_keys(const char* key, Keys& keys) {
    if (const TomlNode* node = find(key)) add_keys(*node, "", keys);
  }
  void read_choice(const char* key, Choice& choice) {
    const TomlNode* node = find(key);
    if (node == nullptr) return;
    choice = choice_in(*node, key);
  }
  void read_choices(const char* key, std::vector<Choice>& choices) {
    const TomlNode* node = find(key);
    if (node == nullptr) return;
    choices.clear();
    if (node->kind == TomlNode::Kind::list)
      for (const TomlNode& item : node->items) choices.push_back(choice_in(item, key));
    else
      choices.push_back(choice_in(*node, key));
  }

 private:
  Choice choice_in(const TomlNode& node, const std::string& key) {
    Choice choice;
    if (node.kind != TomlNode::Kind::table) report_wrong(node, key, "a table of axes");
    for (const auto& [axis, settings] : node.entries) choice[axis] = names_in(settings, axis);
    return choice;
  }
  void add_keys(const TomlNode& node, const std::string& prefix, Keys& keys) {
    if (node.kind != TomlNode::Kind::table) {
      report_wrong(node, prefix.empty() ? "set" : prefix, "a table of keys of a configuration");
      return;
    }
    for (const auto& [name, value] : node.entries) {
      const std::string key = prefix.empty() ? name : prefix + "." + name;
      if (value.kind == TomlNode::Kind::table) {
        add_keys(value, key, keys);
      } else if (value.kind == TomlNode::Kind::list) {
        std::string list;
        for (const TomlNode& item : value.items) list += (list.empty() ? "" : ",") + item.text;
        keys[key] = list;
      } else {
        keys[key] = value.text;
      }
    }
  }
};

}  // namespace laconic
