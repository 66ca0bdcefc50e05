// Which rows ranks look up, from the data alone: tokens of their own samples, and never padding,
// though it lies in fields and may be the number of a token that others read.
#include "laconic/train/row_reader.hpp"

#include <gtest/gtest.h>

#include "laconic/config/read.hpp"
#include "laconic/data/indexed_writer.hpp"
#include "laconic/data/test_data.hpp"
#include "laconic/train/batch.hpp"

namespace laconic {
namespace {

constexpr std::int64_t kRecordContext = 16;
constexpr SpecialTokens kWithPad{.pad = 0, .eos = 4, .cls = 1, .sep = 2, .mask = 3};
constexpr SpecialTokens kWithout{.pad = kNoToken, .eos = 4, .cls = 1, .sep = 2, .mask = 3};

// Two records of two parts: tokens 20 21 22 and 30; 20 and 31 32.
Dataset write_pairs(const std::string& prefix, const RecordInfo& info,
                    const SpecialTokens& special) {
  IndexedWriter writer(prefix, 300);
  using Part = std::vector<std::int32_t>;
  for (const auto& [first, second] :
       {std::pair<Part, Part>{{20, 21, 22}, {30}}, {{20}, {31, 32}}}) {
    for (const Part& part : {first, second}) {
      writer.add(part);
      writer.end_part();
    }
    writer.end_record();
  }
  writer.add_labels(info.task == TaskKind::translate ? std::vector<double>{}
                                                     : std::vector<double>{0, 1});
  writer.sync("bytes", 0, special, info);
  writer.commit();
  return open_dataset(prefix, kRecordContext, 300, 0, {.task = info.task});
}

// Two members with a sample each.
class TwoReaders : public testing::Test {
 protected:
  TwoReaders() {
    config_.mesh.dp = 2;
    config_.train.batch = 2;
    config_.data.shuffle = false;
  }
  RowIds rows(const Task& task, const Dataset& data, int member, const char* field) const {
    const SampleOrder order = sample_order(config_, samples_in(data), 0);
    return RowReader{config_, data, order, task}.rows(0, member, field);
  }
  std::string new_prefix() { return folder_ / std::to_string(++datasets_); }

  const TemporaryFolder folder_;
  int datasets_ = 0;
  RunConfig config_;
};

TEST_F(TwoReaders, OfTranslationsReadNoPaddingOfEitherSide) {
  for (const SpecialTokens& special : {kWithPad, kWithout})
    for (const bool to_longest : {false, true}) {
      const Task task = Translate{special, to_longest};
      const Dataset data = write_pairs(new_prefix(), {TaskKind::translate, 2, 0}, special);
      // The source ends with eos, and the target begins with what stands for bos.
      EXPECT_EQ(rows(task, data, 0, "source"), (RowIds{4, 20, 21, 22}));
      EXPECT_EQ(rows(task, data, 1, "source"), (RowIds{4, 20}));
      EXPECT_EQ(rows(task, data, 0, "ids"), (RowIds{4, 30}));
      EXPECT_EQ(rows(task, data, 1, "ids"), (RowIds{4, 31, 32}));
      // What is told apart has a target everywhere else.
      EXPECT_EQ(rows(task, data, 1, "targets"), (RowIds{4, 31, 32}));
    }
}

TEST_F(TwoReaders, OfTextsAndPairsReadWhatTheLengthCounts) {
  for (const bool to_longest : {false, true}) {
    const Task task = Classify{kWithPad, to_longest};
    const Dataset data =
        write_pairs(new_prefix(), {TaskKind::classify, 2, 1, {"a", "b"}}, kWithPad);
    EXPECT_EQ(rows(task, data, 0, "ids"), (RowIds{1, 2, 20, 21, 22, 30}));
    EXPECT_EQ(rows(task, data, 1, "ids"), (RowIds{1, 2, 20, 31, 32}));
  }
}

TEST_F(TwoReaders, CountTokensAsOftenAsTheyCome) {
  const Dataset data = write_pairs(new_prefix(), {TaskKind::classify, 2, 1, {"a", "b"}}, kWithPad);
  const Task task = Classify{kWithPad};
  const SampleOrder order = sample_order(config_, samples_in(data), 0);
  const RowReader reader{config_, data, order, task};
  // [CLS] 20 21 22 [SEP] 30 [SEP]
  EXPECT_EQ(reader.tokens(0, 0, "ids"), (std::vector<std::int64_t>{1, 20, 21, 22, 2, 30, 2}));
  const ParameterSpec table{.name = "table", .sizes = {300, 4}, .looked_up_by = {"ids"}};
  // 6 of 7 and 5 of 6 are different ones. The next step has the same samples.
  const ReadShares shares = read_shares(table, reader, 0, 0);
  EXPECT_NEAR(shares.unique, 11.0 / 13, 1e-12);
  EXPECT_EQ(shares.prior, 1);
}

}  // namespace
}  // namespace laconic
