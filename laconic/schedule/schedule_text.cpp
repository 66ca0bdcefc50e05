#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "laconic/base/error.hpp"
#include "laconic/base/index.hpp"
#include "laconic/base/text.hpp"
#include "laconic/schedule/schedule.hpp"
#include "laconic/schedule/schedule_fault.hpp"

namespace laconic {

namespace {

// By Op.
constexpr std::array<std::string_view, 9> kSigns = {"F",  "B",  "I",  "W", ">a",
                                                    "<a", ">g", "<g", "P"};
// In files of earlier versions: where a stage's sums over replicas begin. That follows from its
// last backward, so the word is passed over.
constexpr std::string_view kReduction = "R";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Beyond these a number is a slip of the hand, and a short file would ask for gigabytes.
constexpr int kMaxStages = 1000;
constexpr int kMaxMicrobatches = 100'000;

constexpr int kUnnamed = -1;  // a stage that the word does not say

constexpr std::string_view kPlacement = "placement";

// A number at the front of `text`, which is taken off; kUnnamed if there is none. Large ones stop
// growing: they are refused by the caller, whatever they are.
int take_number(std::string_view& text) {
  if (text.empty() || !is_digit(text.front())) return kUnnamed;
  int number = 0;
  for (; !text.empty() && is_digit(text.front()); text.remove_prefix(1))
    number = std::min(10 * number + (text.front() - '0'), kMaxMicrobatches * 10);
  return number;
}

std::optional<Op> take_sign(std::string_view& text) {
  for (std::size_t op = 0; op < kSigns.size(); ++op)
    if (text.starts_with(kSigns[op])) {
      text.remove_prefix(kSigns[op].size());
      return static_cast<Op>(op);
    }
  return std::nullopt;
}

class Parser {
 public:
  Schedule parse(std::string_view text) {
    for (const std::string& line : split(text, '\n')) {
      ++line_;
      const std::string_view content = trim(line);
      if (!content.empty() && content.front() != '#') parse_line(content);
    }
    check_ranks();
    check_stages();
    if (schedule_.shape.microbatches < 1) problem_of_file("no action has a microbatch");
    refuse(problems_);
    return std::move(schedule_);
  }

 private:
  struct Place {
    int line = 0;
    std::string word;
  };

  // "rank 2:  F0 F1 ..."
  void parse_line(std::string_view content) {
    const std::size_t colon = content.find(':');
    std::string_view head = content.substr(0, colon);
    if (colon != std::string_view::npos && trim(head) == kPlacement)
      return parse_placement(content.substr(colon + 1));
    const int rank = colon == std::string_view::npos ? kUnnamed : take_head(head);
    if (rank == kUnnamed || rank >= kMaxStages)
      return problem(fmt::format("'{}' should be 'rank N:' with N below {}, and actions behind it",
                                 printable(content.substr(0, colon)), kMaxStages));
    const auto [at, is_new] = line_of_rank_.try_emplace(rank, line_);
    if (!is_new) problem(fmt::format("rank {} is there already, in line {}", rank, at->second));
    auto& list = lists_[rank];
    for (const std::string& word : words_of(content.substr(colon + 1)))
      if (const auto action = parse_action(word, rank)) list.push_back(*action);
  }

  // "placement:  0 1 1 0"
  void parse_placement(std::string_view content) {
    if (placement_line_ > 0)
      problem(fmt::format("a placement is there already, in line {}", placement_line_));
    placement_line_ = line_;
    schedule_.placement.clear();
    for (const std::string& word : words_of(content)) {
      std::string_view rest = word;
      const int rank = take_number(rest);
      if (rank == kUnnamed || rank >= kMaxStages || !rest.empty())
        problem(
            fmt::format("'{}' in the placement is no rank below {}", printable(word), kMaxStages));
      schedule_.placement.push_back(rank);
    }
    if (schedule_.placement.empty() || schedule_.placement.size() > index(kMaxStages))
      problem(fmt::format("the placement has {} ranks; one for each stage is needed, from 1 to {}",
                          schedule_.placement.size(), kMaxStages));
  }

  static int take_head(std::string_view head) {
    if (!head.starts_with("rank")) return kUnnamed;
    head = trim(head.substr(4));
    const int rank = take_number(head);
    return head.empty() ? rank : kUnnamed;
  }

  static std::vector<std::string> words_of(std::string_view text) {
    std::string plain(text);
    std::ranges::replace(plain, '\t', ' ');
    std::vector<std::string> words = split(plain, ' ');
    std::erase(words, "");
    return words;
  }

  std::optional<Action> parse_action(const std::string& word, int rank) {
    std::string_view rest = word;
    const int stage = take_number(rest);
    if (rest == kReduction) return std::nullopt;
    const auto op = take_sign(rest);
    const int microbatch = take_number(rest);
    if (!op || !rest.empty() || has_microbatch(*op) != (microbatch != kUnnamed)) {
      problem(fmt::format("'{}' is no action{}", printable(word), reason(op, rest, microbatch)));
      return std::nullopt;
    }
    if (stage >= kMaxStages || microbatch >= kMaxMicrobatches) {
      problem(fmt::format("'{}': stages are below {}, microbatches below {}", printable(word),
                          kMaxStages, kMaxMicrobatches));
      return std::nullopt;
    }
    auto& first = stage == kUnnamed ? unnamed_ : named_;
    if (!first) first = Place{line_, word};
    schedule_.shape.stages = std::max(schedule_.shape.stages, stage + 1);
    if (has_microbatch(*op))
      schedule_.shape.microbatches = std::max(schedule_.shape.microbatches, microbatch + 1);
    return Action{*op, stage == kUnnamed ? rank : stage, std::max(microbatch, 0)};
  }

  static std::string reason(std::optional<Op> op, std::string_view rest, int microbatch) {
    if (!op) return fmt::format(" (they are {})", fmt::join(kSigns, " "));
    if (!rest.empty()) return fmt::format(" ('{}' is too much)", printable(rest));
    const std::string_view sign = kSigns.at(static_cast<std::size_t>(*op));
    if (microbatch != kUnnamed) return fmt::format(" ({} has no microbatch)", sign);
    return fmt::format(" (of which microbatch? {}0 is of the first)", sign);
  }

  void check_ranks() {
    schedule_.shape.ranks = static_cast<int>(lists_.size());
    if (lists_.empty()) problem_of_file("no line begins with 'rank'");
    int next = 0;
    for (auto& [rank, list] : lists_) {
      if (rank > next)
        problem_of_file(rank == next + 1
                            ? fmt::format("rank {} has no line", next)
                            : fmt::format("ranks {} ... {} have no line", next, rank - 1));
      next = rank + 1;
      schedule_.by_rank.push_back(std::move(list));
    }
  }

  void check_stages() {
    PipelineShape& shape = schedule_.shape;
    if (named_ && unnamed_)
      problem_of_file(fmt::format("'{}' in line {} names its stage, '{}' in line {} does not",
                                  named_->word, named_->line, unnamed_->word, unnamed_->line));
    if (!named_) shape.stages = shape.ranks;
    if (placement_line_ > 0) shape.stages = static_cast<int>(schedule_.placement.size());
    if (shape.ranks > 0 && shape.stages % shape.ranks != 0)
      problem_of_file(
          fmt::format("{} stages are no multiple of {} ranks", shape.stages, shape.ranks));
    if (placement_line_ == 0) schedule_.placement = round_robin(shape.ranks, shape.stages);
  }

  void problem(std::string what) {
    problems_.push_back({fmt::format("line {}", line_), std::move(what)});
  }
  void problem_of_file(std::string what) { problems_.push_back({"schedule", std::move(what)}); }

  Schedule schedule_{{0, 0, 0}, {}};
  std::map<int, std::vector<Action>> lists_;
  std::map<int, int> line_of_rank_;
  std::optional<Place> named_, unnamed_;  // the first action of each sort
  int line_ = 0;
  int placement_line_ = 0;  // 0: there is none
  Problems problems_;
};

}  // namespace

std::string to_text(const Action& action, bool with_stage) {
  std::string text = with_stage ? std::to_string(action.stage) : "";
  text += kSigns.at(static_cast<std::size_t>(action.op));
  if (has_microbatch(action.op)) text += std::to_string(action.microbatch);
  return text;
}

// Not when each rank has one stage, and only that in its list.
bool names_stages(const Schedule& schedule) {
  if (schedule.shape.stages > schedule.shape.ranks) return true;
  for (std::size_t rank = 0; rank < schedule.by_rank.size(); ++rank)
    if (std::ranges::any_of(schedule.by_rank[rank], [&](const Action& action) {
          return action.stage != static_cast<int>(rank);
        }))
      return true;
  return false;
}

std::string placement_line(const Schedule& schedule) {
  const PipelineShape& shape = schedule.shape;
  int stages = names_stages(schedule) ? 0 : shape.ranks;  // as a reader would count them
  for (const auto& list : schedule.by_rank)
    for (const Action& action : list) stages = std::max(stages, action.stage + 1);
  const bool is_derived =
      stages == shape.stages && schedule.placement == round_robin(shape.ranks, shape.stages);
  return is_derived ? "" : fmt::format("{}:  {}\n", kPlacement, to_text(schedule.placement));
}

std::string to_text(const Schedule& schedule) {
  const bool with_stage = names_stages(schedule);
  std::string text = placement_line(schedule);
  for (std::size_t rank = 0; rank < schedule.by_rank.size(); ++rank) {
    text += fmt::format("rank {}: ", rank);
    for (const Action& action : schedule.by_rank[rank]) text += " " + to_text(action, with_stage);
    text += '\n';
  }
  return text;
}

Schedule parse_schedule(std::string_view text) {
  return Parser().parse(text);
}

}  // namespace laconic
