// data/words.hpp — which tokens continue a word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace laconic {

// By line of a WordPiece vocabulary: whether the token begins with "##".
std::vector<bool> continuing_lines(std::string_view vocabulary);

// By token of the tokeniser in this folder. Throws ConfigError when its tokens do not say it, which
// those of all but WordPiece do not.
std::vector<bool> continuing_tokens(const std::string& folder);

}  // namespace laconic
