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
