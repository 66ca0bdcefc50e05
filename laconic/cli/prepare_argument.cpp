#include "laconic/cli/prepare_argument.hpp"

#include <CLI/CLI.hpp>

#include "laconic/cli/summary_argument.hpp"

namespace laconic {

void add_words(CLI::App& verb, PrepareCommand& command) {
  PrepareOptions& o = command.options;
  verb.add_option("INPUT", o.inputs,
                  "text and .jsonl files, also as .gz, .zst or .xz; folders of .txt and .jsonl; "
                  "- is standard input")
      ->required();
  verb.add_option("--out", o.output, "where to: PREFIX of the files to write")
      ->required()
      ->type_name("PREFIX");
  auto* tokeniser =
      verb.add_option(
              "--tokeniser,--tokenizer", o.tokeniser,
              "bytes, or a folder or file of Hugging Face: tokenizer.json, vocab.txt, "
                        "tokenizer.model, vocab.json and merges.txt")
          ->type_name("bytes|FOLDER")
          ->capture_default_str();
  verb.add_option("--train-bpe", o.train_vocabulary,
                  "train a byte-level BPE of SIZE tokens on the input")
      ->type_name("SIZE")
      ->excludes(tokeniser);
  verb.add_option_function<std::string>(
          "--documents",
          [&o](const std::string& word) { o.source.documents = *parse_document_split(word); },
          "what a document is in .txt files")
      ->check(CLI::IsMember({"file", "line", "paragraph"}))
      ->default_str("file");
  verb.add_option_function<std::string>(
          "--format",
          [&o](const std::string& word) {
            o.source.format = word == "jsonl"  ? SourceFormat::json_lines
                              : word == "text" ? SourceFormat::text
                                               : SourceFormat::by_name;
          },
          "what inputs hold; auto: by their names, and text in -")
      ->check(CLI::IsMember({"auto", "text", "jsonl"}))
      ->default_str("auto");
  verb.add_option("--text-key", o.source.json_key, "key of the text in .jsonl files")
      ->capture_default_str();
  verb.add_option("--valid", o.validation_share, "share of the documents that goes to PREFIX-valid")
      ->capture_default_str();
  verb.add_flag("!--no-end-of-document", o.append_end_of_document,
                "do not put a token between documents");
  verb.add_option("--threads", o.threads, "0: as many as the machine has")->capture_default_str();
  verb.add_flag("--overwrite", o.overwrite, "replace an older dataset of that name");
  add_summary(verb, command.json);
}

}  // namespace laconic
