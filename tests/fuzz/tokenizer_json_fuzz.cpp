// A tokenizer.json that is taken works: ids are within the vocabulary, special tokens are never
// made from text, and byte-level BPE gives back every text that it does not normalise.
//
// "@":0 in the input stands for the 256 bytes with ids 0 ... 255, which few mutations would find.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "laconic/base/error.hpp"
#include "laconic/data/byte_symbol.hpp"
#include "laconic/data/tokenizer_json.hpp"

using namespace laconic;

// Stands in for PCRE2's: machine code for a pattern takes longer to make than a text this short to
// match, and the interpreter finds the same pieces.
extern "C" int pcre2_jit_compile(pcre2_code*, std::uint32_t) {
  return PCRE2_ERROR_JIT_BADOPTION;
}

namespace {

std::string members_of_bytes() {
  std::string bytes;
  int id = 0;
  for (const std::uint8_t byte : bytes_in_symbol_order()) {
    const std::string symbol = to_symbols({reinterpret_cast<const char*>(&byte), 1});
    const bool is_escaped = symbol == "\"" || symbol == "\\";
    bytes += (id == 0 ? "\"" : ",\"") + (is_escaped ? "\\" + symbol : symbol) +
             "\":" + std::to_string(id);
    ++id;
  }
  return bytes;
}

std::string with_bytes(std::string text) {
  constexpr std::string_view kMark = "\"@\":0";
  static const std::string bytes = members_of_bytes();
  const std::size_t at = text.find(kMark);
  return at == std::string::npos ? text : text.replace(at, kMark.size(), bytes);
}

void check(const std::vector<std::int32_t>& ids, std::size_t size,
           const std::vector<std::int32_t>& special, std::int32_t unknown) {
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= size) __builtin_trap();
    if (id != unknown && std::ranges::find(special, id) != special.end()) __builtin_trap();
  }
}

void use(const BpeParts& parts, std::string_view text) {
  const Bpe bpe(parts.vocabulary, parts.rules);
  std::vector<std::int32_t> ids;
  bpe.encode(text, ids);
  check(ids, parts.vocabulary.tokens.size(), parts.rules.special, -1);
  if (!parts.rules.nfc && bpe.decode(ids) != text) __builtin_trap();
}

void use(const WordPieceParts& parts, std::string_view text) {
  const WordPiece words(parts.vocabulary, parts.rules);
  std::vector<std::int32_t> ids;
  words.encode(text, ids);
  check(ids, parts.vocabulary.tokens.size(), parts.vocabulary.special, parts.vocabulary.unknown);
  words.decode(ids);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text = with_bytes({reinterpret_cast<const char*>(data), size});
  try {
    const TokenizerJson json = parse_tokenizer_json(text, "fuzz");
    // The end of the file is as good a text as any.
    const std::string_view tail =
        std::string_view(text).substr(text.size() - std::min<std::size_t>(text.size(), 200));
    std::visit([&](const auto& parts) { use(parts, tail); }, json.model);
  } catch (const FileError&) {
  } catch (const ConfigError&) {  // a pattern that takes too long
  }
  return 0;
}
