#include "laconic/cli/measured_config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/cli/subject_config.hpp"
#include "laconic/config/read.hpp"
#include "laconic/config/toml_tree.hpp"

namespace laconic {

namespace {

constexpr auto kSmallPresets =
    std::to_array<Named<ModelKind>>({{ModelKind::gpt, "gpt-small"},
                                     {ModelKind::llama, "llama-small"},
                                     {ModelKind::bert, "bert-small"},
                                     {ModelKind::seq2seq, "seq2seq-small"},
                                     {ModelKind::lstm, "lm-small"},
                                     {ModelKind::gnmt, "gnmt-small"}});
static_assert(kSmallPresets.size() == kModelKindNames.size());

constexpr std::int64_t kVocabulary = 4096;
constexpr std::int64_t kTokens = 1024;  // of a microbatch

}  // namespace

std::vector<ModelKind> parse_families(std::string_view text, ModelKind own, Problems& problems) {
  std::vector<std::string> known = names_in(kModelKindNames);
  std::vector<std::string> words = text.empty() ? std::vector<std::string>() : split(text, ',');
  if (text == "all") words = known;
  known.emplace_back("all");
  std::vector<ModelKind> kinds;
  for (const std::string& word : words) {
    const std::string name(trim(word));
    const auto kind = value_in(kModelKindNames, name);
    if (!kind)
      problems.push_back({"--families", fmt::format("there is no family '{}'{}", printable(name),
                                                    suggestion(name, known))});
    else if (*kind != own && std::ranges::find(kinds, *kind) == kinds.end())
      kinds.push_back(*kind);
  }
  return kinds;
}

RunConfig small_config(ModelKind kind, const RunSection& run, const std::string& presets_folder) {
  RunConfig config = read_config(
      {fmt::format("preset:{}", name_in(kSmallPresets, kind)), {}, presets_folder, false});
  config.run = run;
  config.model.vocabulary = kVocabulary;
  config.train.batch = config.train.microbatch =
      std::max<std::int64_t>(1, kTokens / config.model.context);
  refuse(check_subject(config));
  return config;
}

}  // namespace laconic
