#include "laconic/cli/completion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <type_traits>

#include "laconic/base/text.hpp"
#include "laconic/codec/spec.hpp"
#include "laconic/config/run_config.hpp"
#include "laconic/schedule/schedule.hpp"

namespace laconic {

namespace {

// Keys of RunConfig, and the values of those that have a fixed set; called by visit().
struct KeyLister {
  std::map<std::string, std::vector<std::string>> keys;
  std::string section;

  template <class Section>
  void operator()(const char* key, Section& value) {
    section = key;
    value.visit(*this);
  }
  template <class T>
  void operator()(const char* key, T&, const char*) {
    std::vector<std::string>& values = keys[section + "." + key];
    if constexpr (std::is_same_v<T, bool>) values = {"true", "false"};
    if constexpr (std::is_same_v<T, Device>) values = device_words();
  }
  template <class E, std::size_t kSize>
  void operator()(const char* key, E&, const char*, const std::array<Named<E>, kSize>& names) {
    keys[section + "." + key] = names_in(names);
  }
  void operator()(const char* key, std::string& value, const char* help, AlsoAsList) {
    (*this)(key, value, help);
  }
};

// 'text' for a POSIX shell; fish needs backslashes doubled as well.
std::string quote(std::string_view text, bool is_fish = false) {
  std::string out = "'";
  for (const char letter : text)
    if (letter == '\'')
      out += is_fish ? "\\'" : "'\\''";
    else if (letter == '\\' && is_fish)
      out += "\\\\";
    else
      out += letter;
  return out + "'";
}

std::vector<std::string> preset_words(const CompletionWords& words) {
  std::vector<std::string> out;
  for (const std::string& name : words.presets) out.push_back("preset:" + name);
  return out;
}

// "key=value" for all values that are known, "key=" for other keys. Keys of codecs, which have no
// fixed set of values, get the names of codecs.
std::vector<std::string> assignments(const CompletionWords& words) {
  std::vector<std::string> out;
  for (const auto& [key, values] : words.keys) {
    const std::vector<std::string>& known =
        values.empty() && key.ends_with(".codec") ? words.codecs : values;
    if (known.empty()) out.push_back(key + "=");
    for (const std::string& value : known) out.push_back(key + "=" + value);
  }
  return out;
}

// All words that a value of this option may be, as far as they are known.
std::vector<std::string> words_for(const OptionEntry& option, const CompletionWords& words) {
  std::vector<std::string> out = option.choices;
  const auto add = [&](const std::vector<std::string>& more) {
    out.insert(out.end(), more.begin(), more.end());
  };
  switch (kind_of(option)) {
    case ValueKind::config: add(preset_words(words)); break;
    case ValueKind::assignment: add(assignments(words)); break;
    case ValueKind::codec: add(words.codecs); break;
    case ValueKind::schedule: add(words.schedules); break;
    default: break;
  }
  return out;
}

// What else may stand there: 'f' files, 'd' folders, 'c' commands, '-' nothing.
char names_for(const OptionEntry& option) {
  switch (kind_of(option)) {
    case ValueKind::file:
    case ValueKind::config:
    case ValueKind::schedule: return 'f';
    case ValueKind::folder: return 'd';
    case ValueKind::command: return 'c';
    default: return '-';
  }
}

std::vector<std::string> option_names(const VerbEntry& verb) {
  std::vector<std::string> names;
  for (const OptionEntry& option : verb.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

std::vector<std::string> verb_names(const VerbEntry& verb) {
  std::vector<std::string> names;
  for (const VerbEntry& child : verb.verbs) names.push_back(child.name);
  return names;
}

constexpr const char* kBashFunctions = R"(
# Puts the words on the command line together again: bash has cut them at : and =. The last is the
# one to complete.
_laconic_words() {
  local word i
  words=()
  for ((i = 0; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if ((i > 1)) && [[ $word == [:=]* || ${words[-1]} == *[:=] ]]; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
  done
}

# Offers words (one string, separated by blanks) and names: f files, d folders, c commands, - none.
_laconic_offer() {
  local word
  while IFS= read -r word; do
    [[ -n $word ]] && COMPREPLY+=("$word")
  done < <(compgen -W "$1" -- "$cur")
  case $2 in
    f | d | c)
      while IFS= read -r word; do
        [[ -n $word ]] && COMPREPLY+=("$word")
      done < <(compgen -"$2" -- "$cur")
      type compopt &>/dev/null && [[ $2 != c ]] && compopt -o filenames 2>/dev/null
      ;;
  esac
}

_laconic() {
  local -a words
  local cur prev verb='' word i
  COMPREPLY=()
  _laconic_words
  cur=${words[-1]}
  prev=${words[-2]-}
  for word in "${words[@]:1:${#words[@]}-2}"; do
    case "$verb/$word" in
)";

constexpr const char* kBashEnd = R"(  esac
  # What stands before a : or = is a word of its own to bash, which would write it twice.
  if [[ $cur == *[:=]* && $COMP_WORDBREAKS == *[:=]* ]]; then
    word=${cur%"${cur##*[:=]}"}
    COMPREPLY=("${COMPREPLY[@]#"$word"}")
  fi
  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
  return 0
}

complete -F _laconic laconic
)";

// A branch for the values of each option that has one.
std::string bash_values(const VerbEntry& verb, const CompletionWords& words) {
  std::string text;
  for (const OptionEntry& option : verb.options) {
    if (option.value.empty()) continue;
    text += fmt::format("        {}) _laconic_offer {} {} ;;\n", fmt::join(option.names, " | "),
                        quote(fmt::format("{}", fmt::join(words_for(option, words), " "))),
                        names_for(option));
  }
  return text;
}

std::string bash_branch(const std::string& path, const VerbEntry& verb,
                        const CompletionWords& words) {
  std::string text = fmt::format("    {})\n      case $prev in\n{}        *)\n", quote(path),
                                 bash_values(verb, words));
  text += fmt::format("          if [[ $cur == -* ]]; then\n            _laconic_offer {} -\n",
                      quote(fmt::format("{}", fmt::join(option_names(verb), " "))));
  text += "          else\n";
  // Which place it is, is not told apart: all that may stand in any of them, once.
  std::vector<std::string> known;
  char names = '-';
  for (const OptionEntry& place : verb.places) {
    for (const std::string& word : words_for(place, words)) known.push_back(word);
    if (names == '-' || names == 'd') names = names_for(place) == '-' ? names : names_for(place);
  }
  text += fmt::format("            _laconic_offer {} {}\n",
                      quote(fmt::format("{}", fmt::join(known, " "))), names);
  text += fmt::format("            _laconic_offer {} -\n          fi\n          ;;\n",
                      quote(fmt::format("{}", fmt::join(verb_names(verb), " "))));
  return text + "      esac\n      ;;\n";
}

void bash_branches(const std::string& path, const VerbEntry& verb, const CompletionWords& words,
                   std::string& steps, std::string& branches) {
  branches += bash_branch(path, verb, words);
  for (const VerbEntry& child : verb.verbs) {
    const std::string below = path.empty() ? child.name : path + " " + child.name;
    steps += fmt::format("      {}) verb={} ;;\n", quote(path + "/" + child.name), quote(below));
    bash_branches(below, child, words, steps, branches);
  }
}

// Text inside [...] or :...: of zsh's _arguments.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '[' || letter == ']' || letter == ':' || letter == '\\') out += '\\';
    out += letter;
  }
  return out;
}

std::string zsh_action(const OptionEntry& option, const CompletionWords& words) {
  std::vector<std::string> known;
  for (const std::string& word : words_for(option, words)) known.push_back(zsh_text(word));
  const char names = names_for(option);
  const std::string list = fmt::format("compadd -- {}", fmt::join(known, " "));
  const std::string other = names == 'f' ? "_files" : names == 'd' ? "_files -/" : "_command_names";
  if (names == '-') return known.empty() ? " " : fmt::format("({})", fmt::join(known, " "));
  return known.empty() ? other : fmt::format("{{ {}; {} }}", list, other);
}

std::string zsh_option(const OptionEntry& option, const CompletionWords& words) {
  std::string text;
  for (const std::string& name : option.names) {
    const bool is_alone = option.names.size() == 1;
    std::string spec;
    if (option.may_repeat) spec += "*";
    if (!option.may_repeat && !is_alone) spec += fmt::format("({})", fmt::join(option.names, " "));
    spec += fmt::format("{}[{}]", name, zsh_text(option.help));
    if (!option.value.empty())
      spec += fmt::format(":{}:{}", zsh_text(option.value), zsh_action(option, words));
    text += fmt::format(" \\\n        {}", quote(spec));
  }
  return text;
}

void zsh_functions(const std::string& name, const VerbEntry& verb, const CompletionWords& words,
                   std::string& text) {
  std::string body = fmt::format("{}() {{\n  local state line\n  _arguments -C", name);
  for (const OptionEntry& option : verb.options) body += zsh_option(option, words);
  for (const OptionEntry& place : verb.places)
    body += fmt::format(" \\\n        {}",
                        quote(fmt::format("{}:{}:{}", place.may_repeat ? "*" : "",
                                          zsh_text(place.value), zsh_action(place, words))));
  if (!verb.verbs.empty()) {
    body +=
        " \\\n        '1:verb:->verb' '*::word:->words'\n  case $state in\n    verb)\n      local "
        "-a verbs=(\n";
    for (const VerbEntry& child : verb.verbs)
      body += fmt::format("        {}\n", quote(child.name + ":" + zsh_text(child.help)));
    body += "      )\n      _describe verb verbs\n      ;;\n    words)\n      case $line[1] in\n";
    for (const VerbEntry& child : verb.verbs)
      body += fmt::format("        {}) {}_{} ;;\n", child.name, name, child.name);
    body += "      esac\n      ;;\n  esac";
  }
  text += body + "\n}\n\n";
  for (const VerbEntry& child : verb.verbs)
    zsh_functions(name + "_" + child.name, child, words, text);
}

constexpr const char* kFishFunction = R"(
# Whether the verb on the command line is this one.
function __laconic_at
    set -l words (commandline -opc)
    set -e words[1]
    set -l verb $words[1]
    if contains -- "$verb" )";

std::string fish_option(const std::string& path, const OptionEntry& option,
                        const CompletionWords& words) {
  std::string text = fmt::format("complete -c laconic -n {}", quote("__laconic_at " + path, true));
  for (const std::string& name : option.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (option.names.empty() || !option.value.empty()) {
    const char names = names_for(option);
    const std::vector<std::string> known = words_for(option, words);
    std::string candidates = fmt::format("{}", fmt::join(known, " "));
    if (names == 'd') candidates += " (__fish_complete_directories)";
    if (names == 'c') candidates += " (__fish_complete_command)";
    if (!option.names.empty()) text += " -r";
    text += names == 'f' ? " -F" : " -f";
    if (!candidates.empty()) text += " -a " + quote(candidates, true);
  }
  return fmt::format("{} -d {}\n", text, quote(option.help, true));
}

void fish_lines(const std::string& path, const VerbEntry& verb, const CompletionWords& words,
                std::string& text) {
  for (const OptionEntry& option : verb.options) text += fish_option(path, option, words);
  for (const OptionEntry& place : verb.places) text += fish_option(path, place, words);
  for (const VerbEntry& child : verb.verbs) {
    text += fmt::format("complete -c laconic -n {} -f -a {} -d {}\n",
                        quote("__laconic_at " + path, true), quote(child.name, true),
                        quote(child.help, true));
    fish_lines(path.empty() ? child.name : path + " " + child.name, child, words, text);
  }
}

}  // namespace

std::string completion_for_bash(const VerbEntry& root, const CompletionWords& words) {
  std::string steps, branches;
  bash_branches("", root, words, steps, branches);
  return "# Completion of laconic in bash; made by `laconic completion bash`.\n" +
         std::string(kBashFunctions + 1) + steps + "    esac\n  done\n  case $verb in\n" +
         branches + kBashEnd;
}

std::string completion_for_zsh(const VerbEntry& root, const CompletionWords& words) {
  std::string text = "#compdef laconic\n# Made by `laconic completion zsh`.\n\n";
  zsh_functions("_laconic", root, words, text);
  return text +
         "if [ \"$funcstack[1]\" = _laconic ]; then\n  _laconic \"$@\"\nelse\n  compdef _laconic "
         "laconic\nfi\n";
}

std::string completion_for_fish(const VerbEntry& root, const CompletionWords& words) {
  std::vector<std::string> parents;
  for (const VerbEntry& verb : root.verbs)
    if (!verb.verbs.empty()) parents.push_back(verb.name);
  std::string text =
      "# Completion of laconic in fish; made by `laconic completion fish`.\n" +
      std::string(kFishFunction + 1) +
      fmt::format("{}\n        set verb $words[1..2]\n    end\n", fmt::join(parents, " ")) +
      "    test \"$verb\" = \"$argv\"\nend\n\ncomplete -c laconic -f\n";
  fish_lines("", root, words, text);
  return text;
}

CompletionWords known_words(const std::string& presets_folder) {
  CompletionWords words;
  KeyLister lister;
  RunConfig config;
  config.visit(lister);
  words.keys = std::move(lister.keys);
  for (const CodecHelp& codec : codec_help()) words.codecs.push_back(codec.name);
  for (const ScheduleKind kind : kScheduleKinds) words.schedules.emplace_back(name_of(kind));
  std::error_code ignored;  // without presets there are none to offer
  for (const auto& entry : std::filesystem::directory_iterator(presets_folder, ignored))
    if (entry.path().extension() == ".toml") words.presets.push_back(entry.path().stem().string());
  std::sort(words.presets.begin(), words.presets.end());
  return words;
}

}  // namespace laconic
