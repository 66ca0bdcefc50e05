// data/bpe_file.hpp — a byte-level BPE vocabulary as files.
//
// Two files in symbols (byte_symbol.hpp): a JSON object token -> id, and one
// line "left right" per merge, by rank, below a line "#version: 0.2". Hugging
// Face names them vocab.json and merges.txt, OpenAI encoder.json and vocab.bpe.
#pragma once

#include <string>
#include <string_view>

#include "laconic/data/bpe.hpp"

namespace laconic {

struct BpePaths {
  std::string tokens;
  std::string merges;
};

// `path` is a folder or a prefix ("gpt2-" for gpt2-vocab.json): the two files behind it, under
// either pair of names. Throws FileError that lists the names tried.
BpePaths find_bpe_files(const std::string& path);

// Throw FileError that names the file, the token or line, and the remedy: for JSON that does not
// parse, ids that are not 0 ... n-1 once each, a byte or kEndOfText without a token, a merge whose
// parts or product are no tokens, a merge given twice.
BpeVocabulary read_bpe(const BpePaths& paths);
BpeVocabulary parse_bpe(std::string_view tokens_text, std::string_view merges_text,
                        const BpePaths& names);

// The inverse, in Hugging Face's names; each file appears whole or not at all.
void write_bpe(const BpeVocabulary& vocabulary, const std::string& folder);

}  // namespace laconic
