#include "laconic/data/synthetic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/data/indexed_writer.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/data/tokeniser.hpp"

namespace laconic {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kDocument = 1 << 20;  // tokens

// Everything but its name.
void fill_part(IndexedWriter& writer, const std::string& prefix, const SyntheticOptions& options,
               const WordDraws& words, std::int64_t tokens, PartReport& report) {
  const Key key = derive(derive(key_of(options.seed), "synthetic"),
                         prefix == options.output ? "train" : "valid");
  std::vector<std::int32_t> document;
  for (std::int64_t begin = 0; begin < tokens; begin += kDocument) {
    document.clear();
    for (std::int64_t i = begin; i < std::min(begin + kDocument, tokens); ++i)
      document.push_back(static_cast<std::int32_t>(words.at(key, static_cast<std::uint64_t>(i))));
    writer.add(document);
    writer.end_document();
  }
  const Sidecar sidecar = writer.sync("synthetic", 0);
  report.prefix = prefix;
  report.documents = sidecar.documents;
  report.tokens = sidecar.tokens;
}

std::int64_t valid_tokens(const SyntheticOptions& options) {
  return static_cast<std::int64_t>(
      std::llround(options.validation_share * static_cast<double>(options.tokens)));
}

}  // namespace

Problems check(const SyntheticOptions& options) {
  Problems problems;
  if (options.vocabulary < 1 || options.vocabulary > kMostVocabulary)
    problems.push_back({"--vocabulary", fmt::format("{} is not within 1 ... {}", options.vocabulary,
                                                    kMostVocabulary)});
  if (options.tokens < 1)
    problems.push_back({"--tokens", fmt::format("{}: at least 1 is needed", options.tokens)});
  if (!(options.validation_share >= 0 && options.validation_share < 1))
    problems.push_back(
        {"--valid", fmt::format("{} is not within 0 <= share < 1", options.validation_share)});
  if (!options.overwrite)
    for (const std::string& prefix : {options.output, options.output + kValidEnding})
      if (fs::exists(prefix + ".idx"))
        problems.push_back({prefix + ".idx",
                            "exists already: choose another --out, or add "
                            "--overwrite"});
  return problems;
}

PrepareReport prepare_synthetic(const SyntheticOptions& options) {
  const Stopwatch watch;
  refuse(check(options));
  if (const fs::path folder = fs::path(options.output).parent_path(); !folder.empty())
    fs::create_directories(folder);
  const WordDraws words(probabilities_of(lm1b_law(options.vocabulary)));
  PrepareReport report;
  report.vocabulary = static_cast<std::int32_t>(options.vocabulary);
  IndexedWriter train(options.output, options.vocabulary);
  fill_part(train, options.output, options, words, options.tokens, report.train);
  if (const std::int64_t tokens = valid_tokens(options); tokens > 0) {
    const std::string prefix = options.output + kValidEnding;
    IndexedWriter valid(prefix, options.vocabulary);
    fill_part(valid, prefix, options, words, tokens, report.valid);
    valid.commit();
  }
  train.commit();
  report.seconds = watch.seconds();
  return report;
}

}  // namespace laconic
