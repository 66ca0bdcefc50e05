#include "laconic/cli/prepare_argument.hpp"

#include <CLI/CLI.hpp>

#include "laconic/cli/summary_argument.hpp"

namespace laconic {

namespace {

// What prepare makes of records.
void add_record_words(CLI::App& verb, PrepareCommand& command) {
  RecordOptions& r = command.records;
  verb.add_option_function<std::string>(
          "--task",
          [&command](const std::string& word) { command.task = *value_in(kTaskKindNames, word); },
          "what the data is for: text (causal), sentences (masked), or records with labels, "
          "answers or translations")
      ->check(CLI::IsMember(names_in(kTaskKindNames)))
      ->default_str("causal");
  verb.add_option("--layout", r.layout, "names of columns and labels, as GLUE's files have them")
      ->check(CLI::IsMember(layout_names()));
  verb.add_option("--text-column", r.text,
                  "column (name, or number from 1) or JSON key of the text, source or question");
  verb.add_option("--pair-column", r.pair, "of the second text, target or context");
  verb.add_option("--label-column", r.label, "of the label or score");
  verb.add_option("--labels", r.labels,
                  "names of the classes, in order; else as they appear, numbers sorted")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("A,B,...");
  verb.add_flag("!--no-header", r.has_header, "the first row of tables is a record already");
  auto* source =
      verb.add_option("--source", command.source, "text file to translate from, one text a line")
          ->type_name("FILE");
  auto* target = verb.add_option("--target", command.target, "what its lines are translated to")
                     ->type_name("FILE");
  source->needs(target);
  target->needs(source);
}

// Tokens that are drawn.
void add_synthetic_words(CLI::App& verb, PrepareCommand& command) {
  SyntheticOptions& d = command.drawn;
  auto* law =
      verb.add_option("--synthetic", command.synthetic,
                      "instead of INPUT: draw tokens by a law; zipf: as often as words come "
                      "in the One Billion Word benchmark")
          ->check(CLI::IsMember({"zipf"}));
  verb.add_option("--tokens", d.tokens, "synthetic: how many")->type_name("N")->needs(law);
  verb.add_option("--vocabulary", d.vocabulary, "synthetic: different words")
      ->type_name("SIZE")
      ->needs(law)
      ->capture_default_str();
  verb.add_option("--seed", d.seed, "synthetic: of the draws")
      ->type_name("N")
      ->needs(law)
      ->capture_default_str();
}

}  // namespace

void add_words(CLI::App& verb, PrepareCommand& command) {
  PrepareOptions& o = command.options;
  verb.add_option("INPUT", o.inputs,
                  "text and .jsonl files, with --task also .tsv and .csv, also as .gz, .zst or "
                  ".xz; folders of .txt and .jsonl; - is standard input");
  verb.add_option("--out", o.output, "where to: PREFIX of the files to write")
      ->required()
      ->type_name("PREFIX");
  auto* tokeniser =
      verb.add_option("--tokeniser,--tokenizer", o.tokeniser,
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
                              : word == "tsv"  ? SourceFormat::tsv
                              : word == "csv"  ? SourceFormat::csv
                                               : SourceFormat::by_name;
          },
          "what inputs hold; auto: by their names, and text in -; tsv and csv are for --task")
      ->check(CLI::IsMember({"auto", "text", "jsonl", "tsv", "csv"}))
      ->default_str("auto");
  verb.add_option("--text-key", o.source.json_key, "key of the text in .jsonl files")
      ->capture_default_str();
  verb.add_option("--valid", o.validation_share, "share of the documents that goes to PREFIX-valid")
      ->capture_default_str();
  verb.add_option("--validation", o.validation_inputs,
                  "a file that goes to PREFIX-valid, instead of a share; repeat it for more, with "
                  "--source for source and target")
      ->allow_extra_args(false)
      ->type_name("FILE");
  add_record_words(verb, command);
  add_synthetic_words(verb, command);
  verb.add_flag("!--no-end-of-document", o.append_end_of_document,
                "do not put a token between documents");
  verb.add_option("--threads", o.threads, "0: as many as the machine has")->capture_default_str();
  verb.add_flag("--overwrite", o.overwrite, "replace an older dataset of that name");
  add_summary(verb, command.json);
}

}  // namespace laconic
