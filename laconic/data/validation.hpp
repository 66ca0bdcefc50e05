// data/validation.hpp — which text is held back for validation: a pure function.
//
// With many documents, whole documents at even distances: of D documents,
// floor(D * share). With too few for even one (a book in one file), the tail of
// each document, from the first line break behind 1 - share of its bytes.
// Deterministic; no randomness, so adding documents at the end moves none of the
// earlier ones.
#pragma once

#include <cstdint>
#include <string_view>

namespace laconic {

struct ValidationSplit {
  double share = 0;  // [0, 1)
  std::uint64_t documents = 0;
};

struct SplitText {
  std::string_view train;
  std::string_view valid;  // the rest of the text; either may be empty
};

// Requires: document < split.documents.
SplitText split_document(const ValidationSplit& split, std::uint64_t document,
                         std::string_view text);

}  // namespace laconic
