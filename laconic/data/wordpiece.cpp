#include "laconic/data/wordpiece.hpp"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

#include "laconic/base/error.hpp"
#include "laconic/data/piece_cache.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/data/unicode.hpp"

namespace laconic {

namespace {

// What a character is, to WordPiece. Made once for all, since text is walked character by
// character.
enum CharacterFlag : std::uint8_t {
  kCharacterGoes = 1,   // removed by cleaning
  kCharacterBlank = 2,  // White_Space
  kCharacterCjk = 4,    // a word of its own
  kCharacterPunctuation = 8,
  kCharacterMark = 16,  // Mn
  kCharacterDecomposes = 32,
  kCharacterLowers = 64,
  kCharacterCombines = 128,  // has a place among combining marks that follow each other
};

constexpr std::size_t kCodePoints = 0x110000;

// As Hugging Face has it, U+2B820 ... U+2B91F left out.
bool is_cjk(char32_t code) {
  return (code >= 0x4e00 && code <= 0x9fff) || (code >= 0x3400 && code <= 0x4dbf) ||
         (code >= 0x20000 && code <= 0x2a6df) || (code >= 0x2a700 && code <= 0x2b73f) ||
         (code >= 0x2b740 && code <= 0x2b81f) || (code >= 0x2b920 && code <= 0x2ceaf) ||
         (code >= 0xf900 && code <= 0xfaff) || (code >= 0x2f800 && code <= 0x2fa1f);
}

// Canonical decomposition of one character, as far as it goes.
std::size_t decompose(char32_t code, std::array<utf8proc_int32_t, 8>& parts) {
  int boundary = 0;
  const auto count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code), parts.data(), std::ssize(parts),
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), &boundary);
  LACONIC_ASSERT(count >= 0 && count <= std::ssize(parts),
                 fmt::format("{:x}", std::uint32_t{code}));
  return static_cast<std::size_t>(count);
}

int combining_class(char32_t code) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
}

std::uint8_t flags_of(char32_t code) {
  std::uint8_t flags = 0;
  const bool is_line = code == '\t' || code == '\n' || code == '\r';
  if (code == 0 || code == kReplacement || (is_other(code) && !is_line)) flags |= kCharacterGoes;
  if (is_white_space(code)) flags |= kCharacterBlank;
  if (is_cjk(code)) flags |= kCharacterCjk;
  if (is_punctuation(code)) flags |= kCharacterPunctuation;
  if (is_nonspacing_mark(code)) flags |= kCharacterMark;
  if (utf8proc_tolower(static_cast<utf8proc_int32_t>(code)) != static_cast<utf8proc_int32_t>(code))
    flags |= kCharacterLowers;
  if (combining_class(code) != 0) flags |= kCharacterCombines;
  std::array<utf8proc_int32_t, 8> parts;
  if (decompose(code, parts) != 1 || static_cast<char32_t>(parts[0]) != code)
    flags |= kCharacterDecomposes;
  return flags;
}

const std::vector<std::uint8_t>& character_flags() {
  static const std::vector<std::uint8_t> all = [] {
    std::vector<std::uint8_t> flags(kCodePoints);
    for (std::size_t code = 0; code < kCodePoints; ++code) {
      // Nothing is there but private use, of which all goes.
      if (code == 0x30000) code = 0xe0000;
      if (code == 0xe1000) code = 0xf0000;
      flags[code] = code < 0xf0000              ? flags_of(static_cast<char32_t>(code))
                    : (code & 0xfffe) == 0xfffe ? 0
                                                : kCharacterGoes;
    }
    return flags;
  }();
  return all;
}

// The rules of Hugging Face's decoder that make "it ' s ." look like a text again.
void tidy(std::string& word) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules)
    for (std::size_t at = 0; (at = word.find(from, at)) != std::string::npos; at += to.size())
      word.replace(at, from.size(), to);
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// Walks a text and calls `visit` with each word, cleaned.
class WordPieceWords {
 public:
  WordPieceWords(const WordPieceRules& rules, std::string& word)
      : rules_(rules), flags_(character_flags().data()), word_(word) {
    changes_ =
        (rules.strip_accents ? kCharacterDecomposes | kCharacterMark | kCharacterCombines : 0) |
        (rules.lower_case ? kCharacterLowers : 0);
    word_.clear();
  }

  template <class Visit>
  void walk(std::string_view text, Visit visit) {
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      at += point.bytes;
      const std::uint8_t flags = flags_[point.code];
      if (rules_.clean) {
        if (flags & kCharacterGoes) continue;
        if (flags & kCharacterBlank) {
          flush(visit);
          continue;
        }
      }
      const bool is_alone = rules_.space_cjk && (flags & kCharacterCjk);
      if (is_alone) flush(visit);
      if (flags & changes_) {
        change(point.code, visit);
      } else {
        add(point.code, visit);
        run_ = word_.size();
      }
      if (is_alone) flush(visit);
    }
    flush(visit);
  }

 private:
  template <class Visit>
  void flush(Visit& visit) {
    if (!word_.empty()) visit(std::string_view(word_));
    word_.clear();
    run_ = 0;
  }

  // Adds a character as it will be.
  template <class Visit>
  void add(char32_t code, Visit& visit) {
    const std::uint8_t flags = flags_[code];
    if (flags & (kCharacterBlank | kCharacterPunctuation)) {
      flush(visit);
      if (flags & kCharacterBlank) return;
      append_utf8(word_, code);
      flush(visit);
    } else {
      append_utf8(word_, code);
    }
  }

  template <class Visit>
  void change(char32_t code, Visit& visit) {
    if (!rules_.strip_accents) return lower(code, visit);
    std::array<utf8proc_int32_t, 8> parts{static_cast<utf8proc_int32_t>(code)};
    const std::size_t count = flags_[code] & kCharacterDecomposes ? decompose(code, parts) : 1;
    for (std::size_t i = 0; i < count; ++i) {
      const auto part = static_cast<char32_t>(parts[i]);
      const std::uint8_t flags = flags_[part];
      if (!(flags & kCharacterMark)) {
        if (flags & kCharacterCombines) {
          insert(part);
          continue;
        }
        lower(part, visit);
      }
      if (!(flags & kCharacterCombines)) run_ = word_.size();
    }
  }

  template <class Visit>
  void lower(char32_t code, Visit& visit) {
    if (!rules_.lower_case || !(flags_[code] & kCharacterLowers)) return add(code, visit);
    add(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))), visit);
    if (code == 0x130) append_utf8(word_, 0x307);  // the one that becomes two
  }

  // Puts a mark that is kept where the canonical order of those behind one letter wants it.
  void insert(char32_t mark) {
    std::size_t at = run_;
    while (at < word_.size()) {
      const CodePoint other = code_point_at(word_, at);
      if (combining_class(other.code) > combining_class(mark)) break;
      at += other.bytes;
    }
    std::string bytes;
    append_utf8(bytes, mark);
    word_.insert(at, bytes);
  }

  const WordPieceRules& rules_;
  const std::uint8_t* flags_;
  std::string& word_;
  std::size_t run_ = 0;  // where the marks behind the last letter begin
  int changes_ = 0;      // flags of characters that do not stay as they are
};

constexpr const char* kFetchWordPieceAgain = "fetch the vocabulary again";

}  // namespace

struct WordPiece::Scratch {
  PieceCache cache;
  std::string word;
  std::vector<std::int32_t> tokens;
};

WordPiece::WordPiece(WordPieceVocabulary vocabulary, WordPieceRules rules)
    : vocabulary_(std::move(vocabulary)), rules_(rules) {
  std::vector<bool> is_special(vocabulary_.tokens.size());
  for (const std::int32_t id : vocabulary_.special) is_special[id] = true;
  std::int32_t id = 0;
  for (const std::string& token : vocabulary_.tokens) {
    if (!is_special[id]) {
      first_[token] = id;  // of two equal ones the last counts, as in Hugging Face
      if (token.starts_with(vocabulary_.continuation))
        later_[std::string_view(token).substr(vocabulary_.continuation.size())] = id;
      most_ = std::max(most_, token.size());
    }
    ++id;
  }
  character_flags();
}

WordPiece::~WordPiece() = default;

bool WordPiece::match_word(std::string_view word, std::vector<std::int32_t>& tokens) const {
  while (!word.empty()) {
    const Ids& ids = tokens.empty() ? first_ : later_;
    std::size_t end = std::min(word.size(), most_);
    for (;; --end) {
      if (end == 0) return false;
      const auto found = ids.find(word.substr(0, end));
      if (found == ids.end()) continue;
      tokens.push_back(found->second);
      break;
    }
    word.remove_prefix(end);
  }
  return true;
}

void WordPiece::encode_word(std::string_view word, Scratch& scratch,
                            std::vector<std::int32_t>& out) const {
  PieceCache::Slot* slot = scratch.cache.slot_of(word);
  if (slot && slot->holds(word)) {
    out.insert(out.end(), slot->tokens, slot->tokens + slot->count);
    return;
  }
  std::vector<std::int32_t>& tokens = scratch.tokens;
  tokens.clear();
  const bool is_short =
      word.size() <= vocabulary_.longest_word || count_characters(word) <= vocabulary_.longest_word;
  if (!is_short || !match_word(word, tokens)) tokens.assign(1, vocabulary_.unknown);
  if (slot) PieceCache::remember(*slot, word, tokens);
  out.insert(out.end(), tokens.begin(), tokens.end());
}

void WordPiece::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  std::unique_ptr<Scratch> scratch = pool_.borrow([] { return std::make_unique<Scratch>(); });
  scratch->cache.expect(text.size());
  WordPieceWords(rules_, scratch->word).walk(text, [&](std::string_view word) {
    encode_word(word, *scratch, out);
  });
  pool_.give_back(std::move(scratch));
}

std::string WordPiece::text_behind(std::int32_t token) const {
  const std::string& text = vocabulary_.tokens[token];
  std::string word = text.starts_with(vocabulary_.continuation)
                         ? text.substr(vocabulary_.continuation.size())
                         : " " + text;
  if (vocabulary_.clean_up) tidy(word);
  return word;
}

std::string WordPiece::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) {
      text += text_behind(tokens[i]);
      continue;
    }
    text = vocabulary_.tokens[tokens[i]];
    if (vocabulary_.clean_up) tidy(text);
  }
  return text;
}

std::vector<std::string> wordpiece_words(std::string_view text, const WordPieceRules& rules) {
  std::vector<std::string> words;
  std::string scratch;
  WordPieceWords(rules, scratch).walk(text, [&](std::string_view word) {
    words.emplace_back(word);
  });
  return words;
}

WordPieceVocabulary parse_wordpiece(std::string_view text, const std::string& path) {
  if (const auto bad = find_invalid_utf8(text)) {
    const auto line = std::ranges::count(text.substr(0, *bad), '\n') + 1;
    throw FileError(path, fmt::format("line {}", line), "not UTF-8", kFetchWordPieceAgain);
  }
  WordPieceVocabulary vocabulary;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t length = line.find_last_not_of(" \t\v\f\r") + 1;  // 0 when there is nothing
    vocabulary.tokens.emplace_back(line.substr(0, length));
    if (vocabulary.tokens.size() > kMostVocabulary)
      throw FileError(path, "", fmt::format("more than {} lines", kMostVocabulary));
  }
  const auto find = [&](std::string_view name) {
    const auto found = std::ranges::find(vocabulary.tokens, name);
    return found == vocabulary.tokens.end()
               ? -1
               : static_cast<std::int32_t>(found - vocabulary.tokens.begin());
  };
  for (const std::string_view name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})
    if (find(name) >= 0) vocabulary.special.push_back(find(name));
  if (find("[UNK]") < 0 || find("[SEP]") < 0)
    throw FileError(path, find("[UNK]") < 0 ? "[UNK]" : "[SEP]",
                    fmt::format("missing among {} tokens; a vocabulary of BERT has it",
                                vocabulary.tokens.size()),
                    kFetchWordPieceAgain);
  vocabulary.unknown = find("[UNK]");
  return vocabulary;
}

std::string wordpiece_text(const WordPieceVocabulary& vocabulary) {
  std::string text;
  for (const std::string& token : vocabulary.tokens) (text += token) += '\n';
  return text;
}

}  // namespace laconic
