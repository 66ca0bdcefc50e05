#include "laconic/data/answer_tokens.hpp"

#include <algorithm>

namespace laconic {

TokenSpan span_of(const Tokeniser& tokeniser, std::string_view text, Record::Answer answer) {
  const std::vector<std::int32_t> all = tokeniser.encode(text);
  if (all.empty()) return {-1, -1};
  const auto shared_with = [&](const std::vector<std::int32_t>& beginning) {
    return std::ranges::mismatch(all, beginning).in1 - all.begin();
  };
  const std::string_view before = text.substr(0, answer.begin);
  const std::vector<std::int32_t> until = tokeniser.encode(text.substr(0, answer.end));
  const std::int64_t shared = shared_with(until);
  const bool is_whole = shared == static_cast<std::int64_t>(until.size());
  const auto most = static_cast<std::int64_t>(all.size()) - 1;
  const std::int64_t last = std::clamp<std::int64_t>(is_whole ? shared - 1 : shared, 0, most);
  return {std::min<std::int64_t>(shared_with(tokeniser.encode(before)), last), last};
}

}  // namespace laconic
