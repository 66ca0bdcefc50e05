#include "laconic/cli/man_page.hpp"

#include <fmt/format.h>

#include <cctype>

#include "laconic/base/text.hpp"

namespace laconic {

namespace {

// Text as troff prints it: a backslash begins a request, - alone is a hyphen that shells do not
// take, and a line must not begin with a dot or an apostrophe.
std::string troff(std::string_view text) {
  std::string out;
  bool is_line_start = true;
  for (const char letter : text) {
    if (is_line_start && (letter == '.' || letter == '\'')) out += "\\&";
    if (letter == '\\')
      out += "\\e";
    else if (letter == '-')
      out += "\\-";
    else if (letter == '\'')
      out += "\\(aq";
    else if (letter == '`')
      out += "\\(ga";
    else if (letter == '^')
      out += "\\(ha";
    else if (letter == '~')
      out += "\\(ti";
    else
      out += letter;
    is_line_start = letter == '\n';
  }
  return out;
}

std::string sentence(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text.empty() || text.ends_with('.') ? text : text + ".";
}

// An argument of a macro, in bold or italics.
std::string styled(char font, std::string_view text) {
  return fmt::format("\\f{}{}\\fR", font, troff(text));
}

std::string value_text(const OptionEntry& option) {
  if (option.choices.empty()) return styled('I', option.value);
  std::string text = fmt::format("\\fB{}\\fR", troff(join(option.choices, "|")));
  return option.value == "WORD" || option.value.empty() ? text
                                                        : text + "|" + styled('I', option.value);
}

std::string option_text(const OptionEntry& option) {
  std::string head;
  for (const std::string& name : option.names)
    head += (head.empty() ? "" : ", ") + styled('B', name);
  if (option.names.empty())
    head = styled('I', option.value);
  else if (!option.value.empty())
    head += " " + value_text(option);
  std::string help = option.help;
  if (!option.default_value.empty()) help += fmt::format(" (default: {})", option.default_value);
  return fmt::format(".TP\n{}\n{}\n", head, troff(help));
}

std::string example_text(const std::string& footer) {
  if (footer.empty()) return "";
  return fmt::format(".PP\n.nf\n{}\n.fi\n", troff(footer));
}

bool is_help(const OptionEntry& option) {
  return !option.names.empty() && option.names.back() == "--help";
}

std::string synopsis(const VerbPath& path) {
  std::string text = styled('B', "laconic " + path.words);
  bool has_optional = false;
  for (const OptionEntry& option : path.verb->options)
    if (option.is_required)
      text += fmt::format(" {} {}", styled('B', option.names.back()), value_text(option));
    else if (!is_help(option))
      has_optional = true;
  for (const OptionEntry& place : path.verb->places) {
    const std::string name = styled('I', place.value) + (place.may_repeat ? " ..." : "");
    text += place.is_required ? " " + name : " [" + name + "]";
  }
  return text + (has_optional ? " [" + styled('I', "options") + "]" : "");
}

// CLI11 gives verbs that have no footer that of the program, which stands at the end already.
std::string verb_text(const VerbPath& path, const VerbEntry& root) {
  std::string text = fmt::format(".SS {}\n{}\n.PP\n{}\n", troff(path.words), synopsis(path),
                                 troff(sentence(path.verb->help)));
  for (const OptionEntry& place : path.verb->places) text += option_text(place);
  for (const OptionEntry& option : path.verb->options)
    if (!is_help(option)) text += option_text(option);
  return path.verb->footer == root.footer ? text : text + example_text(path.verb->footer);
}

}  // namespace

std::string man_page(const VerbEntry& root, const std::string& version) {
  std::string text = fmt::format(
      ".\\\" Made by `laconic man` from what --help prints.\n"
      ".TH LACONIC 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\nlaconic \\- train language models "
      "over slow networks\n.SH SYNOPSIS\n",
      troff("laconic " + version));
  const std::vector<VerbPath> leaves = leaf_verbs(root);
  for (const VerbPath& path : leaves) text += synopsis(path) + "\n.br\n";
  text += fmt::format(".SH DESCRIPTION\n{}\n", troff(sentence(root.help)));
  text += ".SH OPTIONS\n";
  for (const OptionEntry& option : root.options) text += option_text(option);
  text += ".SH VERBS\n";
  for (const VerbPath& path : leaves) text += verb_text(path, root);
  return text + ".SH EXAMPLES\n" + example_text(root.footer);
}

}  // namespace laconic
