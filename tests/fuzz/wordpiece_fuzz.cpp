// A vocabulary that is taken can be written and read again, and tokens of any text are within it.
// Everything behind a zero byte is text. One input in four is written and read again, which takes
// as long as everything else.
#include <algorithm>
#include <cstdint>

#include "laconic/base/error.hpp"
#include "laconic/data/wordpiece.hpp"

using namespace laconic;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(end);
  const WordPieceRules rules{.clean = size % 2 == 0,
                             .space_cjk = size % 3 == 0,
                             .strip_accents = size % 5 < 3,
                             .lower_case = size % 7 < 4};
  try {
    const WordPieceVocabulary vocabulary = parse_wordpiece(input.substr(0, end), "fuzz");
    if (size % 4 == 0 && parse_wordpiece(wordpiece_text(vocabulary), "fuzz") != vocabulary)
      __builtin_trap();
    const WordPiece words(vocabulary, rules);
    std::vector<std::int32_t> ids;
    words.encode(text, ids);
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= words.size()) __builtin_trap();
      const bool is_special = std::ranges::find(vocabulary.special, id) != vocabulary.special.end();
      if (is_special && id != vocabulary.unknown) __builtin_trap();
    }
    words.decode(ids);
  } catch (const FileError&) {
  }
  return 0;
}
