#include "laconic/metric/bleu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

using Words = std::vector<std::string_view>;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_stop(char c) {
  return c == '.' || c == ',';
}

// ASCII punctuation and the space, but not ' , - . (which have rules of their own, or none).
bool is_symbol(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
         (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

std::string isolate_symbols(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_symbol(c)) {
      out += {' ', c, ' '};
    } else {
      out += c;
    }
  }
  return out;
}

// Rewrites each pair of neighbours that `matches`, left to right; a pair takes both characters.
template <class Matches>
std::string rewrite_pairs(std::string_view text, Matches matches, bool space_before,
                          bool space_after) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 == text.size() || !matches(text[i], text[i + 1])) {
      out += text[i];
      continue;
    }
    if (space_before) out += ' ';
    out += {text[i], ' ', text[i + 1]};
    if (space_after) out += ' ';
    ++i;
  }
  return out;
}

// The bytes of the blank at the front, as Python's str.isspace() knows blanks; 0: there is none.
std::size_t blank_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? text[i] & 0xff : 0; };
  const int a = byte(0), b = byte(1), c = byte(2);
  if ((a >= 0x09 && a <= 0x0d) || (a >= 0x1c && a <= 0x20)) return 1;
  if (a == 0xc2) return b == 0x85 || b == 0xa0 ? 2 : 0;
  if (a == 0xe1) return b == 0x9a && c == 0x80 ? 3 : 0;  // U+1680
  if (a == 0xe3) return b == 0x80 && c == 0x80 ? 3 : 0;  // U+3000
  if (a != 0xe2) return 0;
  const bool is_2000 =
      b == 0x80 && ((c >= 0x80 && c <= 0x8a) || c == 0xa8 || c == 0xa9 || c == 0xaf);
  return is_2000 || (b == 0x81 && c == 0x9f) ? 3 : 0;  // U+2000-200A, 2028, 2029, 202F; 205F
}

Words words_of(std::string_view text) {
  Words words;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t blank = at == text.size() ? 1 : blank_at(text.substr(at));
    if (blank == 0) {
      ++at;
      continue;
    }
    if (at > begin) words.push_back(text.substr(begin, at - begin));
    begin = at += blank;
  }
  return words;
}

std::string_view without_blank_end(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t blank = blank_at(text.substr(at));
    at += blank == 0 ? 1 : blank;
    if (blank == 0) end = at;
  }
  return text.substr(0, end);
}

using Grams =
    std::map<std::span<const std::string_view>, std::int64_t,
             decltype([](std::span<const std::string_view> a, std::span<const std::string_view> b) {
               return std::ranges::lexicographical_compare(a, b);
             })>;

// n-grams of orders 1 ... 4 and how often each occurs.
Grams grams_of(const Words& words) {
  Grams grams;
  for (std::size_t order = 1; order <= kBleuOrders; ++order)
    for (std::size_t i = 0; i + order <= words.size(); ++i)
      ++grams[std::span(words).subspan(i, order)];
  return grams;
}

struct Segment {
  std::string text;  // tokenised; what the views of words look into
  Words words;
  Grams grams;

  explicit Segment(std::string_view line)
      : text(tokenise_13a(without_blank_end(line))),
        words(words_of(text)),
        grams(grams_of(words)) {}
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
};

std::int64_t nearest_length(std::int64_t length, const std::set<std::int64_t>& lengths) {
  return *std::ranges::min_element(  // of two as near, the shorter, which comes first
      lengths, {}, [&](std::int64_t other) { return std::abs(other - length); });
}

void count_segment(Bleu& bleu, const std::string& translation,
                   const std::vector<std::string>& references, std::size_t number) {
  const Segment own(translation);
  std::map<std::vector<std::string>, std::int64_t> allowed;
  std::set<std::int64_t> lengths;
  for (const std::string& line : references) {
    const Segment reference(line);
    lengths.insert(static_cast<std::int64_t>(reference.words.size()));
    for (const auto& [gram, count] : reference.grams) {
      std::int64_t& most = allowed[{gram.begin(), gram.end()}];
      most = std::max(most, count);
    }
  }
  if (lengths.empty()) throw ConfigError(fmt::format("translation {} has no reference", number));
  for (const auto& [gram, count] : own.grams) {
    bleu.total[gram.size() - 1] += count;
    const auto found = allowed.find({gram.begin(), gram.end()});
    if (found != allowed.end()) bleu.correct[gram.size() - 1] += std::min(count, found->second);
  }
  const auto length = static_cast<std::int64_t>(own.words.size());
  bleu.length += length;
  bleu.reference_length += nearest_length(length, lengths);
}

// Precisions and score from the counts.
void compute_score(Bleu& bleu) {
  const auto ratio = static_cast<double>(bleu.reference_length) / static_cast<double>(bleu.length);
  bleu.brevity_penalty = bleu.length >= bleu.reference_length ? 1.0
                         : bleu.length == 0                   ? 0.0
                                                              : std::exp(1 - ratio);
  if (std::ranges::all_of(bleu.correct, [](std::int64_t count) { return count == 0; })) return;
  double smoothing = 1, logarithms = 0;
  for (std::size_t i = 0; i < kBleuOrders && bleu.total[i] > 0; ++i) {
    const auto total = static_cast<double>(bleu.total[i]);
    bleu.precisions[i] = bleu.correct[i] == 0
                             ? 100.0 / ((smoothing *= 2) * total)
                             : 100.0 * static_cast<double>(bleu.correct[i]) / total;
  }
  for (const double precision : bleu.precisions) {
    if (precision == 0) return;  // no translation has as many words: the mean is 0
    logarithms += std::log(precision);
  }
  bleu.score = bleu.brevity_penalty * std::exp(logarithms / kBleuOrders);
}

}  // namespace

std::string tokenise_13a(std::string_view line) {
  std::string text(line);
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  text = isolate_symbols(" " + text + " ");
  text = rewrite_pairs(
      text, [](char a, char b) { return !is_digit(a) && is_stop(b); }, false, true);
  text = rewrite_pairs(
      text, [](char a, char b) { return is_stop(a) && !is_digit(b); }, true, false);
  text = rewrite_pairs(
      text, [](char a, char b) { return is_digit(a) && b == '-'; }, false, true);
  return fmt::format("{}", fmt::join(words_of(text), " "));
}

Bleu bleu(std::span<const std::string> translations,
          std::span<const std::vector<std::string>> references) {
  if (translations.size() != references.size())
    throw ConfigError(fmt::format("{} translations, but references of {}", translations.size(),
                                  references.size()));
  Bleu bleu;
  for (std::size_t i = 0; i < translations.size(); ++i)
    count_segment(bleu, translations[i], references[i], i + 1);
  compute_score(bleu);
  return bleu;
}

std::string bleu_signature(std::span<const std::vector<std::string>> references) {
  std::set<std::size_t> numbers;
  for (const auto& lines : references) numbers.insert(lines.size());
  const std::string number = numbers.size() == 1 ? std::to_string(*numbers.begin()) : "var";
  return fmt::format("nrefs:{}|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0", number);
}

std::string to_text(const Bleu& bleu) {
  const auto& p = bleu.precisions;
  const double ratio = bleu.reference_length == 0 ? 0
                                                  : static_cast<double>(bleu.length) /
                                                        static_cast<double>(bleu.reference_length);
  return fmt::format(
      "BLEU = {:.2f} {:.1f}/{:.1f}/{:.1f}/{:.1f} (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len "
      "= "
      "{})",
      bleu.score, p[0], p[1], p[2], p[3], bleu.brevity_penalty, ratio, bleu.length,
      bleu.reference_length);
}

}  // namespace laconic
