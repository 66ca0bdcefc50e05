#include "laconic/train/batch.hpp"

#include <gtest/gtest.h>

#include "laconic/base/target.hpp"
#include "laconic/data/indexed_writer.hpp"
#include "laconic/data/test_data.hpp"

namespace laconic {
namespace {

constexpr SpecialTokens kSpecial{.pad = 0, .eos = 4, .cls = 1, .sep = 2, .mask = 3};

// Records of two parts with 3 + 2, 9 + 1 and 1 + 6 tokens.
Dataset write_records(const std::string& prefix, const RecordInfo& info,
                      const std::vector<double>& labels) {
  IndexedWriter writer(prefix, 300);
  for (const auto& [first, second] : {std::pair{3, 2}, {9, 1}, {1, 6}}) {
    for (const int size : {first, second}) {
      writer.add(std::vector<std::int32_t>(static_cast<std::size_t>(size), 100 + size));
      writer.end_part();
    }
    writer.end_record();
  }
  writer.add_labels(labels);
  writer.sync("bytes", 0, kSpecial, info);
  writer.commit();
  return open_dataset(prefix, 32, 300, 0, {.task = info.task});
}

std::vector<std::int64_t> sizes_of(const at::Tensor& field) {
  return field.sizes().vec();
}

using Sizes = std::vector<std::int64_t>;

TEST(Batch, ScoresAreReal) {
  const TemporaryFolder folder;
  const Dataset data = write_records(folder / "d", {TaskKind::regress, 2, 1}, {1.5, -2, 0.1});
  const Batch batch = make_batch(Regress{kSpecial}, data, Sizes{2, 0}, at::kCPU);
  ASSERT_EQ(batch["score"].scalar_type(), at::kDouble);
  EXPECT_EQ(batch["score"][0][0].item<double>(), 0.1);
  EXPECT_EQ(batch["score"][1][0].item<double>(), 1.5);
  EXPECT_EQ(sizes_of(batch["ids"]), (Sizes{2, 32}));
  EXPECT_EQ(batch["length"][0][0].item<std::int64_t>(), 10);
}

TEST(Batch, PaddingMayEndWithTheLongestSample) {
  const TemporaryFolder folder;
  const Dataset data =
      write_records(folder / "d", {TaskKind::classify, 2, 1, {"a", "b"}}, {1, 0, 1});
  const Batch full = make_batch(Classify{kSpecial}, data, Sizes{0, 1, 2}, at::kCPU);
  // 8, 13 and 10 tokens with the special ones.
  for (const auto& [ids, tokens] :
       {std::pair<std::vector<std::int64_t>, std::int64_t>{{0}, 8}, {{0, 2}, 16}, {{1}, 16}}) {
    const Batch cut = make_batch(Classify{kSpecial, true}, data, ids, at::kCPU);
    const auto samples = static_cast<std::int64_t>(ids.size());
    for (const char* field : {"ids", "types"}) {
      EXPECT_EQ(sizes_of(cut[field]), (Sizes{samples, tokens}));
      for (std::size_t i = 0; i < ids.size(); ++i)
        EXPECT_TRUE(cut[field][static_cast<std::int64_t>(i)].equal(
            full[field][ids[i]].narrow(0, 0, tokens)));
    }
    EXPECT_EQ(sizes_of(cut["label"]), (Sizes{samples, 1}));
    EXPECT_EQ(sizes_of(cut["length"]), (Sizes{samples, 1}));
  }
}

TEST(Batch, SourceAndTargetAreCutEachByItself) {
  const TemporaryFolder folder;
  const Dataset data = write_records(folder / "d", {TaskKind::translate, 2, 0}, {});
  const Batch cut = make_batch(Translate{kSpecial, true}, data, Sizes{1}, at::kCPU);
  EXPECT_EQ(sizes_of(cut["source"]), (Sizes{1, 16}));  // 9 tokens and eos
  EXPECT_EQ(sizes_of(cut["ids"]), (Sizes{1, 8}));
  EXPECT_EQ(sizes_of(cut["targets"]), (Sizes{1, 8}));
  EXPECT_EQ(cut["targets"][0][1].item<std::int64_t>(), 4);
  EXPECT_EQ(cut["targets"][0][2].item<std::int64_t>(), kNoTarget);
}

TEST(Batch, EpochsHaveMasksOfTheirOwn) {
  const TemporaryFolder folder;
  IndexedWriter writer(folder / "d", 300);
  writer.add(std::vector<std::int32_t>(500, 77));
  writer.end_document();
  writer.sync("bytes", 0, kSpecial);
  writer.commit();
  RunConfig config;
  config.task.kind = TaskKind::masked;
  config.task.mask_share = 0.3;
  const Dataset data = open_dataset(folder / "d", 34, 300, 0, sample_kind_of(config));
  const auto targets_at = [&](std::uint64_t epoch) {
    return make_batch(task_of(config, data), data, std::vector<SampleAt>{{3, epoch}},
                      at::kCPU)["targets"];
  };
  EXPECT_TRUE(targets_at(0).equal(targets_at(0)));
  EXPECT_FALSE(targets_at(0).equal(targets_at(1)));
  config.task.masks = MaskDraws::sample;
  EXPECT_TRUE(targets_at(0).equal(targets_at(1)));
}

}  // namespace
}  // namespace laconic
