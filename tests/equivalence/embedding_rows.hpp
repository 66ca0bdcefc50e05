// Tables whose rows travel (embedding.rows), in whole runs of ranks that are threads.
#pragma once

#include "laconic/config/row_choice.hpp"
#include "laconic/rows/row_plan.hpp"
#include "laconic/train/batch.hpp"
#include "laconic/train/row_reader.hpp"
#include "pipeline_ranks.hpp"

namespace laconic {

class EmbeddingRows : public PipelineParallel {
 protected:
  // A Llama with a table of its own for the output; sums in rank order.
  RunConfig config_on(const std::string& name, std::int64_t dp,
                      const std::vector<std::string>& sets = {}) {
    RunConfig c = config(name, 1, dp);
    c.model.layers = 1;
    c.train.batch = 12;
    c.train.microbatch = 1;
    c.train.steps = 5;
    set(c, {"model.kind=llama", "train.clip=0", "dp.gradient.algorithm=direct"});
    set(c, sets);
    return c;
  }
  static std::vector<std::string> sgd() {
    return {"optimiser.kind=sgd", "optimiser.momentum=0", "optimiser.weight_decay=0",
            "optimiser.lr=0.5"};
  }
  static std::vector<std::string> with(std::vector<std::string> sets,
                                       const std::vector<std::string>& more) {
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
  }
  static std::vector<std::string> lazy(const std::vector<std::string>& more = {}) {
    return with({"embedding.rows.method=alltoall", "embedding.rows.optimiser=lazy_adam"}, more);
  }

  static std::vector<std::string> lstm() {
    return {"model.kind=lstm",
            "model.heads=6",
            "model.context=12",
            "model.hidden=20",
            "model.projection=recurrent",
            "task.sampled=40"};
  }

  // Translations of sentences of different lengths, and a Transformer that looks up both in one
  // table.
  void prepare_pairs() {
    std::filesystem::create_directories(folder_ / "wordpiece");
    std::ofstream vocabulary(folder_ / "wordpiece/vocab.txt");
    for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})
      vocabulary << token << "\n";
    for (int w = 0; w < 40; ++w) vocabulary << "w" << w << "\n";
    vocabulary.close();
    const auto sentence = [](int number, int words) {
      std::string text;
      for (int w = 0; w < words; ++w)
        text += fmt::format("{}w{}", w == 0 ? "" : " ", (number * 5 + w * w * 3) % 40);
      return text;
    };
    std::ofstream lines(folder_ / "pairs.jsonl");
    for (int i = 0; i < 120; ++i)
      lines << fmt::format("{{\"source\": \"{}\", \"target\": \"{}\"}}\n", sentence(i, 3 + i % 9),
                           sentence(i + 7, 2 + i % 11));
    lines.close();
    PrepareOptions options{.inputs = {folder_ / "pairs.jsonl"},
                           .output = folder_ / "pairs",
                           .tokeniser = folder_ / "wordpiece",
                           .validation_share = 0.1};
    options.source.records = resolved({.task = TaskKind::translate});
    prepare(options);
  }
  std::vector<std::string> pairs() const {
    return {"model.kind=seq2seq",
            "task.kind=translate",
            "evaluate.bleu_samples=0",
            "model.sharing=input",
            fmt::format("data.train={}", folder_ / "pairs"),
            fmt::format("data.valid={}", folder_ / "pairs-valid")};
  }

  static std::uint64_t bytes_of_rows(const TrainSummary& summary) {
    for (const TrafficTotal& total : summary.traffic)
      if (total.traffic == Traffic::embedding_rows) return total.sent.raw_bytes;
    return 0;
  }

  // Without moments, which plain sgd does not look at.
  static std::string parameters_of(const TrainSummary& summary) {
    return std::string(MappedFile(summary.checkpoint + "/model.safetensors").text());
  }

  // The losses in a run's log, by step.
  std::string losses(const std::string& name) const {
    std::string all;
    std::ifstream file(folder_ / (name + "/log.jsonl"));
    for (std::string line; std::getline(file, line);) {
      const std::size_t at = line.find("\"loss\":");
      if (at != std::string::npos) all += line.substr(at, line.find(',', at) - at) + "\n";
    }
    return all;
  }
};

}  // namespace laconic
