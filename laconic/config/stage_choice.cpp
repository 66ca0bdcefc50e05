#include "laconic/config/stage_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

// The whole text is this number.
template <class T>
bool reads_as(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty();
}

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw ConfigError(fmt::format("stages = \"{}\" {}", text, why));
}

}  // namespace

StageChoice parse_stage_choice(std::string_view text) {
  StageChoice choice;
  if (text == "all") return choice;
  if (text == "auto") return {.kind = StageChoice::Kind::automatic};
  if (reads_as(text, choice.count)) {
    if (choice.count < 0) refuse(text, "is negative");
    choice.kind = StageChoice::Kind::first;
  } else if (reads_as(text, choice.fraction)) {
    if (!(choice.fraction >= 0 && choice.fraction <= 1)) refuse(text, "is not in [0, 1]");
    choice.kind = StageChoice::Kind::fraction;
  } else {
    refuse(text, "is none of all, auto, a number of ranks (\"3\"), a fraction (\"0.75\")");
  }
  return choice;
}

bool is_automatic(std::string_view text) {
  return parse_stage_choice(text).kind == StageChoice::Kind::automatic;
}

Problems check_stage_choice(std::string_view text, std::int64_t pp) {
  try {
    const StageChoice choice = parse_stage_choice(text);
    if (choice.kind == StageChoice::Kind::first && choice.count > pp)
      return {{"", fmt::format("stages = {} of {} pipeline ranks (mesh.pp)", choice.count, pp)}};
  } catch (const ConfigError& error) {
    return error.problems();
  }
  return {};
}

int encoded_ranks(const StageChoice& choice, int pp, int automatic) {
  switch (choice.kind) {
    case StageChoice::Kind::all: return pp;
    case StageChoice::Kind::first: return std::min(choice.count, pp);
    case StageChoice::Kind::automatic: return std::clamp(automatic, 0, pp);
    case StageChoice::Kind::fraction: break;
  }
  constexpr double kRounding = 1e-9;  // a fraction of 0.1 is three of thirty, not four
  return static_cast<int>(std::ceil(choice.fraction * pp - kRounding));
}

}  // namespace laconic
