// bench/bpe_bench.cpp — MB/s of encoding on one core, with any tokeniser.
//
//   bpe_bench TOKENISER TEXT_FILE [REPEATS] [--lines]
//
// TOKENISER is a folder, tokenizer.json, vocab.txt, or a SentencePiece model.
//
// The first pass includes filling the cache of pieces; the best pass is the
// steady state of a large corpus. --lines encodes line by line. Then, with
// byte-level BPE, a vocabulary of 8192 is trained on the text. Numbers count bytes of
// text, 1 MB = 10^6.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>

#include "laconic/base/clock.hpp"
#include "laconic/data/bpe_train.hpp"
#include "laconic/data/piece.hpp"
#include "laconic/data/tokeniser.hpp"
#include "laconic/file/mapped_file.hpp"

namespace {

void split_only(std::string_view text) {
  laconic::PieceSplitter splitter;
  const laconic::Stopwatch watch;
  std::size_t pieces = 0;
  splitter.start(text);
  while (!splitter.next().empty()) ++pieces;
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  fmt::print("split   {:8.1f} MB/s  {} pieces\n", megabytes / watch.seconds(), pieces);
}

void encode_lines(const laconic::Tokeniser& tokeniser, std::string_view text,
                  std::vector<std::int32_t>& tokens) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    tokeniser.encode(text.substr(0, end), tokens);
    text.remove_prefix(end);
  }
}

void encode_passes(const laconic::Tokeniser& tokeniser, std::string_view text, int repeats,
                   bool by_lines) {
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  double best = 0;
  std::vector<std::int32_t> tokens;
  for (int pass = 0; pass < repeats; ++pass) {
    tokens.clear();
    const laconic::Stopwatch watch;
    if (by_lines) {
      encode_lines(tokeniser, text, tokens);
    } else {
      tokeniser.encode(text, tokens);
    }
    const double speed = megabytes / watch.seconds();
    if (pass == 0) fmt::print("first   {:8.1f} MB/s\n", speed);
    best = std::max(best, speed);
  }
  fmt::print("best    {:8.1f} MB/s  {} tokens of {} bytes\n", best, tokens.size(), text.size());
}

void train(std::string_view text) {
  const laconic::Stopwatch watch;
  laconic::PieceCounts pieces;
  pieces.add(text);
  const auto result = laconic::train_bpe(pieces, 8192);
  fmt::print("train   {:8.1f} s  {} tokens\n", watch.seconds(), result.vocabulary.tokens.size());
}

}  // namespace

int main(int count, char** words) try {
  if (count < 3) {
    fmt::print(stderr, "usage: bpe_bench TOKENISER TEXT_FILE [REPEATS] [--lines]\n");
    return 2;
  }
  const laconic::Stopwatch load;
  const laconic::Tokeniser tokeniser = laconic::load_tokeniser(words[1]);
  fmt::print("load    {:8.0f} ms\n", load.seconds() * 1000);
  const laconic::MappedFile text(words[2]);
  const bool is_bpe = tokeniser.kind() == laconic::TokeniserKind::bpe;
  const bool by_lines = count > 4 && std::string_view(words[4]) == "--lines";
  if (is_bpe) split_only(text.text());
  encode_passes(tokeniser, text.text(), count > 3 ? std::max(1, std::atoi(words[3])) : 5, by_lines);
  if (is_bpe) train(text.text());
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bpe_bench: {}\n", error.what());
  return 1;
}
