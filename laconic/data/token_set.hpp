// data/token_set.hpp — the ids that a dataset may hold, and what a task needs of them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "laconic/base/task_kind.hpp"
#include "laconic/data/special_tokens.hpp"

namespace laconic {

inline constexpr std::int32_t kNoToken = -1;

// Names of special tokens in files and messages, each with its member.
inline constexpr std::array<std::pair<std::string_view, std::int32_t SpecialTokens::*>, 7>
    kSpecialTokens = {{{"pad", &SpecialTokens::pad},
                       {"bos", &SpecialTokens::bos},
                       {"eos", &SpecialTokens::eos},
                       {"cls", &SpecialTokens::cls},
                       {"sep", &SpecialTokens::sep},
                       {"mask", &SpecialTokens::mask},
                       {"unk", &SpecialTokens::unk}}};

struct TokenSet {
  std::int64_t vocabulary = 0;
  SpecialTokens special = {};
};

// The special tokens that samples of the task cannot be made without and that are not there, as
// "cls, sep"; empty: all are. `has_sentences`: masked, with sentence pairs.
std::string missing_special(TaskKind task, bool has_sentences, const SpecialTokens& special);

}  // namespace laconic
