#include "laconic/data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "laconic/base/error.hpp"

namespace laconic {

std::string missing_special(TaskKind task, bool has_sentences, const SpecialTokens& special) {
  std::vector<std::string_view> wanted;
  switch (task) {
    case TaskKind::causal: break;
    case TaskKind::masked: wanted = {"cls", "sep", "mask"}; break;
    case TaskKind::classify:
    case TaskKind::regress:
    case TaskKind::span: wanted = {"cls", "sep", "pad"}; break;
    case TaskKind::translate:
      if (special.sep == kNoToken) wanted = {"eos"};  // else sep ends a text, too
      break;
  }
  if (has_sentences) wanted.push_back("pad");
  std::string missing;
  for (const auto& [name, member] : kSpecialTokens)
    if (std::ranges::count(wanted, name) > 0 && special.*member == kNoToken)
      missing += (missing.empty() ? "" : ", ") + std::string(name);
  return missing;
}

namespace {

// What the data was prepared for. Text is for causal, and for masked where nobody wants sentences.
std::string_view purpose_of(const std::optional<Sidecar>& sidecar) {
  return name_in(kTaskKindNames,
                 sidecar && sidecar->records ? sidecar->records->task : TaskKind::causal);
}

void check_purpose(const std::string& prefix, const std::optional<Sidecar>& sidecar,
                   SampleKind kind) {
  const bool has_records = sidecar && sidecar->records;
  const TaskKind made_for = has_records ? sidecar->records->task : TaskKind::causal;
  if (kind.task == TaskKind::masked) {
    if (made_for == TaskKind::masked) return;
    if (made_for == TaskKind::causal && !kind.has_next_sentence) return;
  } else if (made_for == kind.task) {
    return;
  }
  const std::string_view wanted = name_in(kTaskKindNames, kind.task);
  throw ConfigError(fmt::format(
      "task.kind = \"{}\"{}, but {} was prepared for \"{}\": prepare it with --task {}{}", wanted,
      kind.has_next_sentence ? " with task.next_sentence = true" : "", prefix, purpose_of(sidecar),
      wanted, kind.task == TaskKind::causal ? " (the default)" : ", or set task.kind"));
}

// The shortest sample that holds anything.
void check_context(std::int64_t context, SampleKind kind) {
  const std::int64_t least = kind.task == TaskKind::causal      ? 1
                             : kind.task == TaskKind::translate ? 2
                             : kind.has_next_sentence           ? 5
                             : kind.task == TaskKind::masked    ? 3
                                                                : 5;
  if (context < least)
    throw ConfigError(
        fmt::format("a context of {} tokens is too short for task.kind = \"{}\"; "
                    "the least is {}",
                    context, name_in(kTaskKindNames, kind.task), least));
}

// After the tokens themselves: what is wrong with those is said first.
void check_special(const TokenSet& set, const std::string& prefix, std::int64_t vocabulary) {
  for (const auto& [name, member] : kSpecialTokens)
    if (set.special.*member >= vocabulary)
      throw ConfigError(
          fmt::format("the special token {} of {} has the id {}, and the model's vocabulary is {}",
                      name, prefix, set.special.*member, vocabulary));
}

}  // namespace

Dataset open_dataset(const std::string& prefix, std::int64_t context, std::int64_t vocabulary,
                     std::int64_t stride, SampleKind kind) {
  auto tokens = std::make_shared<IndexedDataset>(prefix);
  const std::optional<Sidecar> sidecar = read_sidecar(prefix);
  check_purpose(prefix, sidecar, kind);
  TokenSet set{.vocabulary = vocabulary, .special = {}};
  if (sidecar) {
    verify_dataset(prefix);  // only we write check sums
    set = {std::min(vocabulary, sidecar->vocabulary), sidecar->special};
  }
  if (const std::string missing = missing_special(kind.task, kind.has_next_sentence, set.special);
      !missing.empty())
    throw ConfigError(fmt::format(
        "task.kind = \"{}\" needs the special tokens {}, and the tokeniser of {} has none such",
        name_in(kTaskKindNames, kind.task), missing, prefix));
  check_context(context, kind);
  if (stride > 0 && kind.task != TaskKind::causal)
    throw ConfigError(
        fmt::format("a stride of {} tokens: only samples of \"causal\" overlap, not "
                    "those of \"{}\"",
                    stride, name_in(kTaskKindNames, kind.task)));
  if (kind.has_next_sentence) {
    SentenceDataset data(std::move(tokens), context, vocabulary, set);
    check_special(set, prefix, vocabulary);
    return data;
  }
  if (kind.task != TaskKind::causal && kind.task != TaskKind::masked) {
    RecordDataset data(std::move(tokens), *sidecar->records, context, vocabulary, set);
    check_special(set, prefix, vocabulary);
    return data;
  }
  if (kind.task == TaskKind::masked) check_special(set, prefix, vocabulary);
  // Masked: between [CLS] and [SEP].
  const std::int64_t window = kind.task == TaskKind::masked ? context - 2 : context;
  return WindowedDataset(std::move(tokens), static_cast<std::uint64_t>(window), vocabulary,
                         static_cast<std::uint64_t>(stride), sidecar && sidecar->prompts > 0, set);
}

std::uint64_t samples_in(const Dataset& data) {
  return std::visit([](const auto& d) { return d.samples(); }, data);
}

const IndexedDataset& tokens_in(const Dataset& data) {
  return std::visit([](const auto& d) -> const IndexedDataset& { return d.tokens(); }, data);
}

const TokenSet& set_in(const Dataset& data) {
  return std::visit([](const auto& d) -> const TokenSet& { return d.set(); }, data);
}

bool has_prompts(const Dataset& data) {
  const auto* windows = std::get_if<WindowedDataset>(&data);
  return windows != nullptr && windows->has_prompts();
}

}  // namespace laconic
