#include "laconic/link/link_spec.hpp"

#include <fmt/format.h>

#include "laconic/base/text.hpp"

namespace laconic {

namespace {

bool is_learned(const CodecSpec& codec) {
  return std::holds_alternative<AutoEncoder>(codec);
}

void check_delta(const LinkSpec& link, const Delta& delta, Problems& problems) {
  for (Problem problem : check(delta.first)) {
    problem.where = fmt::format("{}: first visit: {}", link.name, problem.where);
    problems.push_back(std::move(problem));
  }
  if (is_learned(delta.first))
    problems.push_back({link.name,
                        "first visit: auto_encoder is learned along with the model, so "
                        "what it decodes today is no reference for tomorrow"});
  if (delta.hash_every < 1)
    problems.push_back(
        {link.name, fmt::format("hash_every = {} is not positive", delta.hash_every)});
  if (!delta.folder.empty() && delta.budget_bytes == 0)
    problems.push_back({link.name, "references on disk need a budget_bytes"});
}

}  // namespace

Problems check(const LinkSpec& link) {
  Problems problems;
  for (Problem problem : check(link.codec)) {
    problem.where = fmt::format("{}: {}", link.name, problem.where);
    problems.push_back(std::move(problem));
  }
  if (link.name.empty()) problems.push_back({"link", "has no name"});
  if (link.name.find('/') != std::string::npos)
    problems.push_back({link.name, "a name with '/' cannot name a file in a checkpoint"});
  if (is_learned(link.codec) && !std::holds_alternative<NoMemory>(link.memory))
    problems.push_back({link.name,
                        "auto_encoder cannot have a memory: the sender has no decoder, so "
                        "it does not know what was lost"});
  if (link.numbering.turns == 0 || link.numbering.samples == 0)
    problems.push_back({link.name, fmt::format("numbers for {} turns of {} samples",
                                               link.numbering.turns, link.numbering.samples)});
  if (const auto* delta = std::get_if<Delta>(&link.memory)) check_delta(link, *delta, problems);
  return problems;
}

LinkSpec without_codec(LinkSpec link) {
  link.codec = Raw{};
  link.memory = NoMemory{};
  return link;
}

bool is_lossy(const LinkSpec& link) {
  return is_lossy(link.codec) || std::holds_alternative<Delta>(link.memory);
}

bool has_memory(const LinkSpec& link) {
  return !std::holds_alternative<NoMemory>(link.memory) ||
         (link.has_warm_start && std::holds_alternative<LowRank>(link.codec)) ||
         std::holds_alternative<Transform>(link.codec);
}

std::string to_text(const MemorySpec& memory) {
  if (std::holds_alternative<NoMemory>(memory)) return "none";
  if (const auto* feedback = std::get_if<ErrorFeedback>(&memory))
    return feedback->reset == Reset::step ? "error_feedback:reset=step" : "error_feedback";
  const auto& delta = std::get<Delta>(memory);
  std::vector<std::string> parts;
  if (delta.first != Delta{}.first) parts.push_back("first=" + to_text(delta.first));
  if (delta.reference != Reference::f32)
    parts.push_back(fmt::format("reference={}", name_in(kReferenceNames, delta.reference)));
  if (!delta.folder.empty()) parts.push_back("folder=" + delta.folder);
  if (delta.budget_bytes != 0) parts.push_back(fmt::format("budget_bytes={}", delta.budget_bytes));
  if (delta.hash_every != Delta{}.hash_every)
    parts.push_back(fmt::format("hash_every={}", delta.hash_every));
  return parts.empty() ? "delta" : "delta:" + join(parts, ",");
}

}  // namespace laconic
