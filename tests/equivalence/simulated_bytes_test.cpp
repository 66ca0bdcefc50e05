// What a simulated step sends, class by class, is what a run of the same configuration counts: its
// ranks really run here, as threads.
#include "embedding_rows.hpp"
#include "laconic/base/test_effort.hpp"
#include "laconic/simulate/test_subject.hpp"
#include "tensor_runs.hpp"

namespace laconic {
namespace {

constexpr double kAnyRate = 1e6;

Count sent_in(const TrainSummary& summary, Traffic traffic) {
  for (const TrafficTotal& total : summary.traffic)
    if (total.traffic == traffic) return total.sent;
  return {};
}

class SimulatedBytes : public TensorRun {
 protected:
  // Two microbatches of samples and a vocabulary that every grid here divides.
  RunConfig divisible(const std::vector<std::string>& sets) {
    RunConfig c = grid_config("run", sets);
    c.data.valid = "";
    c.model.layers = 2;
    c.model.context = 8;
    c.model.vocabulary = 264;
    return c;
  }

  // What a second step adds: beginning and end of a run are not in it.
  std::map<Traffic, ClassBytes> counted_in_a_step(RunConfig c) {
    std::map<Traffic, ClassBytes> counted;
    std::vector<TrainSummary> runs;
    for (const std::int64_t steps : {1, 2}) {
      c.run.folder = folder_ / fmt::format("of {} steps", steps);
      c.train.steps = steps;
      runs.push_back(run(c));
      std::filesystem::remove_all(c.run.folder);
    }
    for (int t = 0; t < kTrafficClasses; ++t) {
      const auto traffic = static_cast<Traffic>(t);
      const Count one = sent_in(runs[0], traffic), two = sent_in(runs[1], traffic);
      counted[traffic] = {two.messages - one.messages, two.wire_bytes - one.wire_bytes};
    }
    return counted;
  }

  void expect_simulated(const std::vector<std::string>& sets) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(sets, " ")));
    const RunConfig c = divisible(sets);
    const RunSimulation simulated = Subject(c, bare_hosts(size(mesh_of(c)), kAnyRate)).run();
    for (const auto& [traffic, counted] : counted_in_a_step(c)) {
      if (traffic == Traffic::control || traffic == Traffic::preflight) continue;
      const ClassBytes& sent = simulated.sent.at(static_cast<std::size_t>(traffic));
      EXPECT_EQ(sent.messages, counted.messages) << name_of(traffic);
      EXPECT_EQ(sent.wire_bytes, counted.wire_bytes) << name_of(traffic);
    }
  }
};

std::vector<std::string> joined(std::vector<std::string> sets,
                                const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

const std::vector<std::vector<std::string>> kGrids = {
    {"mesh.tp=2", "tensor.method=1d"},          {"mesh.tp=4", "tensor.method=1d"},
    {"mesh.tp=4", "tensor.method=1d-sequence"}, {"mesh.tp=4", "tensor.method=2d"},
    {"mesh.tp=2,2,2", "tensor.method=2.5d"},    {"mesh.tp=2,2,2", "tensor.method=3d"}};

TEST_F(SimulatedBytes, OfEveryGridAreThoseOfARun) {
  for (const auto& grid : kGrids)
    for (const auto& codecs : {std::vector<std::string>(), kShortMessages})
      expect_simulated(joined(grid, codecs));
}

// Among two ranks both forms of a sum send as much, among four the gathered one sends twice that.
TEST_F(SimulatedBytes, OfGatheredSumsAreThoseOfARun) {
  const std::vector<std::string> gathered = {"tp.activation.sum=gathered",
                                             "tp.gradient.sum=gathered"};
  const std::vector<std::string> published = {
      "tp.activation.codec=quantise:bits=2,group=channel,scale=f16,grid=artefact",
      "tp.activation.layers=1", gathered[0]};
  const std::vector<std::vector<std::string>> rows = {
      joined(joined(kGrids[1], kShortMessages), gathered),
      joined(joined(kGrids[0], kShortMessages), gathered),
      joined(joined(kGrids[1], published), {"run.precision=bfloat16"}),
      joined(kGrids[1], published)};
  for (const auto& row : some_of(rows, 2)) expect_simulated(row);
}

TEST_F(SimulatedBytes, OfGridsWithStagesAndReplicasAreThoseOfARun) {
  const std::vector<std::vector<std::string>> rows = {
      {"mesh.pp=2", "mesh.tp=2", "tensor.method=1d"},
      {"mesh.pp=2", "mesh.tp=1,2,2", "tensor.method=3d", "pp.activation.codec=quantise:bits=4"},
      {"mesh.dp=2", "mesh.tp=4", "tensor.method=2d"},
      {"mesh.dp=2", "mesh.tp=1,2,1", "tensor.method=1d-sequence",
       "dp.gradient.codec=quantise:bits=4"},
      {"mesh.pp=2", "mesh.dp=2", "mesh.tp=2", "tensor.method=1d"}};
  for (const auto& row : some_of(rows, 2))
    for (const auto& codecs : {std::vector<std::string>(), kShortMessages})
      expect_simulated(joined(row, codecs));
}

TEST_F(SimulatedBytes, OfGridsThatKeepWhatTheyGatherAreThoseOfARun) {
  for (const auto& grid : {kGrids[2], kGrids[3], kGrids[5]})
    expect_simulated(joined(grid, {"tensor.keep=gathered"}));
  expect_simulated(joined(kGrids[5], {"tensor.keep=gathered", "model.recompute=true"}));
}

// In bfloat16 sums travel in float32, and what is gathered in bfloat16; what is computed again is
// gathered again.
TEST_F(SimulatedBytes, OfShortNumbersLearnedCodesAndRecomputationAreThoseOfARun) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& grid : {kGrids[0], kGrids[3], kGrids[5]})
    for (const auto& codecs : {std::vector<std::string>(), kShortMessages})
      rows.push_back(joined(joined(grid, {"run.precision=bfloat16"}), codecs));
  for (const char* codec : {"auto_encoder:code=4", "\"auto_encoder:code=4,values=bf16\""})
    for (const auto& grid : {kGrids[1], kGrids[3]})
      rows.push_back(joined(grid, {fmt::format("tp.activation.codec={}", codec)}));
  rows.push_back(joined(kGrids[5], {"model.recompute=true"}));
  rows.push_back(joined(kGrids[2], {"model.kind=llama", "model.recompute=true"}));
  rows.push_back(joined(joined(kGrids[3], {"model.kind=llama"}), kShortMessages));
  for (const auto& row : some_of(rows, 3)) expect_simulated(row);
}

class SimulatedRows : public EmbeddingRows {
 protected:
  RunConfig config_of(std::int64_t dp, const std::vector<std::string>& sets) {
    RunConfig c = config_on("rows", dp, lazy(sets));
    c.model.width = 24;  // which 2, 3 and 4 ranks divide
    c.model.vocabulary = 257;
    c.data.valid = "";
    c.train.steps = 3;
    return c;
  }

  // How many rows a rank reads, by step and rank.
  static std::vector<std::vector<double>> rows_read(const RunConfig& c) {
    const Dataset data = open_dataset(c.data.train, c.model.context, c.model.vocabulary);
    const SampleOrder order = sample_order(c, samples_in(data), 0);
    const Task task = task_of(c);
    const RowReader reader{c, data, order, task};
    std::vector<std::vector<double>> read(static_cast<std::size_t>(c.train.steps));
    for (std::size_t step = 0; step < read.size(); ++step)
      for (int member = 0; member < c.mesh.dp; ++member)
        read[step].push_back(static_cast<double>(
            reader.rows(static_cast<std::int64_t>(step) * c.train.batch, member, "ids").size()));
    return read;
  }

  static ClassBytes simulated(const RunConfig& c, double rows) {
    Subject subject(c, bare_hosts(static_cast<int>(c.mesh.dp), kAnyRate));
    subject.rows_read = rows;
    return subject.sent(Traffic::embedding_rows);
  }

  // All ranks are simulated as if they read as many rows, so each of a run is simulated for itself.
  void expect_simulated(const RunConfig& c) {
    ClassBytes expected;
    for (const std::vector<double>& step : rows_read(c))
      for (const double rows : step) {
        const ClassBytes all = simulated(c, rows);
        expected.messages += all.messages;
        expected.wire_bytes += all.wire_bytes;
      }
    const Count counted = sent_in(run(c), Traffic::embedding_rows);
    EXPECT_EQ(counted.messages * static_cast<std::uint64_t>(c.mesh.dp), expected.messages);
    EXPECT_EQ(counted.wire_bytes * static_cast<std::uint64_t>(c.mesh.dp), expected.wire_bytes);
    std::filesystem::remove_all(c.run.folder);
  }
};

const std::vector<std::string> kShortRows = {"embedding.rows.codec=quantise:bits=8,group=row",
                                             "embedding.rows.gradient=quantise:bits=4,group=row"};

TEST_F(SimulatedRows, AreThoseThatARunHasRead) {
  struct Case {
    std::int64_t dp;
    std::vector<std::string> sets;
  };
  std::vector<Case> rows;
  for (const std::int64_t dp : {2, 3, 4})
    for (const char* method : {"alltoall", "allgather"})
      rows.push_back({dp, {fmt::format("embedding.rows.method={}", method)}});
  for (const char* method : {"alltoall", "allgather"})
    rows.push_back(
        {4, {fmt::format("embedding.rows.method={}", method), "run.precision=bfloat16"}});
  rows.push_back({2, joined({"embedding.rows.method=alltoall"}, kShortRows)});
  rows.push_back({4, joined({"embedding.rows.method=alltoall"}, kShortRows)});
  for (const Case& c : rows) {
    SCOPED_TRACE(fmt::format("{} ranks, {}", c.dp, fmt::join(c.sets, " ")));
    expect_simulated(config_of(c.dp, with(c.sets, {"embedding.rows.split=off", "train.clip=0"})));
  }
}

// Rows are dealt: here every rank reads the same eight, of which each server has as many.
TEST_F(SimulatedRows, OfServersAreThoseThatARunHasRead) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "abcdefgh";
  std::ofstream(folder_ / "eight.txt") << text;
  prepare({.inputs = {folder_ / "eight.txt"}, .output = folder_ / "eight"});
  for (const std::int64_t dp : {2, 4})
    for (const auto& codecs : {std::vector<std::string>(), kShortRows}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", dp, fmt::join(codecs, " ")));
      RunConfig c = config_of(
          dp, with({"embedding.rows.method=server", "embedding.rows.split=off", "train.clip=0"},
                   codecs));
      c.data.train = folder_ / "eight";
      for (const std::vector<double>& step : rows_read(c))
        for (const double rows : step) ASSERT_EQ(rows, 8);
      expect_simulated(c);
    }
}

}  // namespace
}  // namespace laconic
