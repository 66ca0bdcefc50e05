// metric/bleu.hpp — BLEU of a corpus, as sacreBLEU computes it by default.
//
// Words are those of mteval's 13a tokenisation, case counts. Of every order
// 1 ... 4, the n-grams of a translation that some reference has, at most as
// often as the reference that has it most often, are correct. BLEU is the
// geometric mean of the four precisions over the whole corpus, in percent, times
// a penalty for translations shorter than the references nearest in length. An
// order without any correct n-gram counts as 1/2, the next such as 1/4, ... of
// one ("exp" smoothing); a corpus without any correct word has BLEU 0.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace laconic {

inline constexpr std::size_t kBleuOrders = 4;

struct Bleu {
  double score = 0;                              // 0 ... 100
  std::array<double, kBleuOrders> precisions{};  // in percent, smoothed
  std::array<std::int64_t, kBleuOrders> correct{};
  std::array<std::int64_t, kBleuOrders> total{};
  double brevity_penalty = 0;
  std::int64_t length = 0;            // words of all translations
  std::int64_t reference_length = 0;  // of the references nearest in length
};

// The words of a line, separated by one space.
std::string tokenise_13a(std::string_view line);

// `references` has the references of each translation, one or more. Throws ConfigError for sizes
// that differ, and for a translation without a reference.
Bleu bleu(std::span<const std::string> translations,
          std::span<const std::vector<std::string>> references);

// How the score was made, as sacreBLEU writes it: "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|
// version:2.6.0". The version is that of the sacreBLEU that the tests compare with.
std::string bleu_signature(std::span<const std::vector<std::string>> references);

// "BLEU = 31.42 66.7/38.9/25.0/16.7 (BP = 1.000 ratio = 1.021 hyp_len = 49 ref_len = 48)"
std::string to_text(const Bleu& bleu);

}  // namespace laconic
