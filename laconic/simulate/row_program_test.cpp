#include "laconic/simulate/row_program.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "laconic/base/index.hpp"
#include "laconic/engine/segment.hpp"
#include "laconic/rows/row_method.hpp"
#include "laconic/simulate/run_picture.hpp"
#include "laconic/simulate/test_subject.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {
namespace {

constexpr double kRowsRead = 1000;
constexpr std::int64_t kTableWidth = 256;

// A Llama, whose one table is nothing but looked up.
RunConfig row_config(int dp, RowsMethod method) {
  RunConfig config = lab_config(1, dp);
  config.model.kind = ModelKind::llama;
  config.model.layers = 2;
  config.model.width = kTableWidth;
  config.model.vocabulary = 32000;
  config.embedding_rows.method = method;
  config.embedding_rows.optimiser = RowsOptimiser::lazy_adam;
  config.embedding_rows.split = RowsSplit::off;
  return config;
}

Subject rows_subject(const RunConfig& config) {
  Hosts hosts = bare_hosts(8, 2e6, 1e-4);
  hosts.groups[0].device.multiply_adds_per_second[0] = 40e9;
  Subject subject(config, hosts);
  subject.rows_read = kRowsRead;
  return subject;
}

// As a matrix of so many rows.
double matrix_wire_bytes(std::int64_t rows, std::int64_t columns, Dtype dtype = Dtype::f32) {
  const FrameHeader header{.codec = Raw{}, .tensor = {dtype, {rows, columns}}};
  return static_cast<double>(wire_bytes(max_frame_bytes(header), std::size_t{256} << 10));
}

TEST(RowProgram, BytesAreThoseOfTheFormulas) {
  for (const int n : {2, 4, 8}) {
    const double pairs = n * (n - 1);
    const auto rows = static_cast<std::int64_t>(kRowsRead);
    struct Case {
      RowsMethod method;
      RowMethod formula;
      double messages, bytes;  // of all ranks
      double elements_of_one;  // of a message
    };
    const TableFacts table{.rows = 32000,
                           .width = kTableWidth,
                           .row_bytes = 4.0 * kTableWidth,
                           .looked_up = kRowsRead,
                           .all_read = 0,
                           .served = 2 * kRowsRead * (n - 1) / n};
    for (const Case& c :
         {Case{RowsMethod::alltoall, RowMethod::alltoall, 2 * pairs,
               2 * pairs * matrix_wire_bytes(rows, kTableWidth / n), kRowsRead * kTableWidth / n},
          Case{RowsMethod::allgather, RowMethod::allgather, pairs,
               pairs * matrix_wire_bytes(rows, kTableWidth), kRowsRead * kTableWidth},
          Case{RowsMethod::server, RowMethod::server, 2 * pairs,
               2 * pairs * matrix_wire_bytes(rows / n, kTableWidth),
               kRowsRead / n * kTableWidth}}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", name_in(kRowsMethodNames, c.method), n));
      const Subject subject = rows_subject(row_config(n, c.method));
      for (const Folding folding : {Folding::never, Folding::always}) {
        const ClassBytes sent =
            subject.run(folding).sent[index(static_cast<int>(Traffic::embedding_rows))];
        EXPECT_EQ(static_cast<double>(sent.messages), c.messages);
        EXPECT_EQ(static_cast<double>(sent.wire_bytes), c.bytes);
      }
      EXPECT_DOUBLE_EQ(c.messages * 4 * c.elements_of_one,
                       n * bytes_of_rank(c.formula, table, {.ranks = n}));
    }
  }
}

// Rows are rounded before they travel, their gradients are not (ADR 42).
TEST(RowProgram, RowsInBfloat16AreShorterOneWay) {
  const auto rows = static_cast<std::int64_t>(kRowsRead);
  for (const auto& [method, messages, columns] :
       {std::tuple{RowsMethod::alltoall, 12.0, kTableWidth / 4},
        {RowsMethod::allgather, 12.0, kTableWidth}}) {
    RunConfig config = row_config(4, method);
    config.run.precision = RunPrecision::bfloat16;
    const double there =
        method == RowsMethod::alltoall ? matrix_wire_bytes(rows, columns, Dtype::bf16) : 0;
    EXPECT_EQ(static_cast<double>(rows_subject(config).sent(Traffic::embedding_rows).wire_bytes),
              messages * (there + matrix_wire_bytes(rows, columns)));
  }
}

TEST(RowProgram, ATableThatTravelsByRowsIsInNoOtherSum) {
  const auto dense = [](RowsMethod method) {
    return rows_subject(row_config(4, method)).sent(Traffic::dp_gradient).wire_bytes;
  };
  const std::uint64_t table = std::uint64_t{4} * 32000 * kTableWidth;
  EXPECT_EQ(dense(RowsMethod::alltoall), dense(RowsMethod::server));
  const auto less = static_cast<double>(dense(RowsMethod::allreduce)) -
                    static_cast<double>(dense(RowsMethod::alltoall));
  EXPECT_NEAR(less / (2.0 * 3 * static_cast<double>(table)), 1, 0.001);
}

// Rows that come later or earlier than others are the same rows, in one message more to each peer;
// also where their number is expected, and not whole.
TEST(RowProgram, SplitAndEarlyRowsMoveNoOtherBytes) {
  const auto sent = [](double rows_read, bool is_split, bool is_early) {
    RunConfig config = row_config(4, RowsMethod::alltoall);
    config.train.clip = 0;
    config.embedding_rows.split = is_split ? RowsSplit::on : RowsSplit::off;
    config.embedding_rows.early = is_early;
    Subject subject = rows_subject(config);
    subject.rows_read = rows_read;
    return subject.sent(Traffic::embedding_rows);
  };
  for (const double rows_read : {kRowsRead, 999.6, 13.0, 12.6, 12.4}) {
    const ClassBytes plain = sent(rows_read, false, false);
    for (const auto& [split, early] : {std::pair{true, false}, {false, true}, {true, true}}) {
      const ClassBytes other = sent(rows_read, split, early);
      const double more = 12.0 * ((split ? 1 : 0) + (early ? 1 : 0));
      EXPECT_EQ(static_cast<double>(other.messages), static_cast<double>(plain.messages) + more);
      EXPECT_EQ(
          static_cast<double>(other.wire_bytes),
          static_cast<double>(plain.wire_bytes) + more * matrix_wire_bytes(0, kTableWidth / 4))
          << rows_read << " rows, split " << split << ", early " << early;
    }
  }
}

TEST(RowProgram, MethodsOfRowsAreFasterThanASumOfTheTableAndFold) {
  const double sum = rows_subject(row_config(4, RowsMethod::allreduce)).seconds();
  for (const RowsMethod method : {RowsMethod::alltoall, RowsMethod::allgather, RowsMethod::server})
    for (const UpdateBy update : {UpdateBy::step, UpdateBy::block}) {
      RunConfig config = row_config(4, method);
      config.train.update = update;
      config.train.clip = 0;
      const Subject subject = rows_subject(config);
      EXPECT_LT(subject.seconds(), 0.9 * sum);
      EXPECT_NEAR(subject.seconds(Folding::always) / subject.seconds(), 1, 0.02);
    }
}

// papers/embrace.md: a batch of 128 x 20 tokens of LM1B has 1179 different words.
TEST(RowLoad, AgreesWithWhatBatchesOfLm1bHave) {
  RunConfig config = row_config(16, RowsMethod::alltoall);
  config.model.context = 20;
  config.model.vocabulary = 793470;
  config.train.batch = 16 * 128;
  config.train.microbatch = 128;
  const ModelSpec spec = model_spec(family_of(config, {}), 20);
  const std::vector<RowLoad> loads = row_loads(config, spec, 0);
  ASSERT_EQ(loads.size(), 1U);
  EXPECT_NEAR(loads[0].read, 1179, 60);
  EXPECT_NEAR(loads[0].prior / loads[0].read, 0.69, 0.05);
  EXPECT_GT(loads[0].all_read, loads[0].read);
  EXPECT_NEAR(loads[0].early, loads[0].read - loads[0].prior, 1e-6 * loads[0].read);
  EXPECT_EQ(row_loads(config, spec, 500)[0].read, 500);
}

TEST(RowLoad, AutoTakesWhatIsCheapestOnTheseHosts) {
  RunConfig config = row_config(4, RowsMethod::automatic);
  const Subject subject = rows_subject(config);
  ASSERT_TRUE(subject.config.embedding_rows.decided.has_value());
  EXPECT_EQ(row_loads(subject.config, subject.spec, kRowsRead)[0].method, RowsMethod::alltoall);
}

}  // namespace
}  // namespace laconic
