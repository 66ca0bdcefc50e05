#include "laconic/train/run_facts.hpp"

#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/data/sidecar.hpp"
#include "laconic/data/tokeniser.hpp"

namespace laconic {

namespace {

// As what the run began from has it; else what the tokeniser calls so.
std::int64_t begin_of_text(const Start& start, const Dataset& train) {
  if (!start.from.empty())
    if (const auto id = read_folder_facts(start.from).begin_of_text; id >= 0) return id;
  const SpecialTokens& special = set_in(train).special;
  return special.bos >= 0 ? special.bos : special.cls;
}

// The id that ends a document, for whoever reads config.json; -1: nobody said.
std::int64_t end_of_text(const RunConfig& config, const Start& start) {
  const std::string tokeniser = tokeniser_folder_of(config.data.train);
  if (has_tokeniser(tokeniser)) return load_tokeniser(tokeniser).end_of_document();
  return start.from.empty() ? -1 : read_folder_facts(start.from).end_of_text;
}

}  // namespace

DataFacts read_data_facts(const std::string& prefix) {
  if (!std::filesystem::exists(prefix + ".idx"))
    throw FileError(prefix + ".idx", "", "does not exist",
                    "make it with `laconic prepare`, or correct data.train");
  const IndexedDataset checked(prefix);
  const std::optional<Sidecar> sidecar = read_sidecar(prefix);
  DataFacts facts{.tokens = checked.tokens()};
  if (sidecar) facts.vocabulary = sidecar->vocabulary, facts.xxh3 = sidecar->bin_xxh3;
  if (sidecar && sidecar->records && sidecar->records->parts > 0)
    facts.records = checked.index().documents();
  if (sidecar && sidecar->records)
    facts.labels = static_cast<std::int64_t>(sidecar->records->label_names.size());
  return facts;
}

FolderFacts folder_facts_of(const RunConfig& config, const Start& start, const Dataset& train) {
  FolderFacts facts{.dropout = config.model.dropout,
                    .end_of_text = end_of_text(config, start),
                    .begin_of_text = begin_of_text(start, train)};
  if (const auto* records = std::get_if<RecordDataset>(&train))
    facts.label_names = records->info().label_names;
  return facts;
}

}  // namespace laconic
