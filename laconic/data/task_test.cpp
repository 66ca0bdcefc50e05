#include "laconic/data/task.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "laconic/base/target.hpp"
#include "laconic/data/indexed_writer.hpp"
#include "laconic/data/test_data.hpp"

namespace laconic {
namespace {

std::shared_ptr<const IndexedDataset> open(const std::string& prefix) {
  return std::make_shared<const IndexedDataset>(prefix);
}

TEST(Task, CausalAsksForTheNextTokenAtEveryPosition) {
  const TemporaryFolder folder;
  IndexedWriter writer(folder / "d", 300);
  writer.add(std::vector<std::int32_t>{10, 11, 12, 13, 14, 15, 16});
  writer.end_document();
  writer.sync("bytes", 0);
  writer.commit();
  const Dataset data = WindowedDataset(open(folder / "d"), 3, 300);
  const std::vector<FieldSpec> fields = fields_of(Causal{}, 3);
  EXPECT_EQ(fields, (std::vector<FieldSpec>{{"ids", {3}}, {"targets", {3}}}));
  EXPECT_EQ(predicted_field(Causal{}), "targets");
  std::vector<std::int64_t> ids(3), targets(3);
  const std::vector<std::span<std::int64_t>> rows = {ids, targets};
  read_sample(Causal{}, data, {1}, rows);
  EXPECT_EQ(ids, (std::vector<std::int64_t>{13, 14, 15}));
  EXPECT_EQ(targets, (std::vector<std::int64_t>{14, 15, 16}));
}

// Documents: 10 11 | 12 13, then 14 15 16 alone, then | 17 with an empty prompt, 18 | 19.
void write_pairs(const std::string& prefix) {
  IndexedWriter writer(prefix, 300);
  const auto add = [&](std::vector<std::int32_t> tokens) { writer.add(tokens); };
  add({10, 11}), writer.end_prompt(), add({12, 13}), writer.end_document();
  add({14, 15, 16}), writer.end_document();
  writer.end_prompt(), add({17}), writer.end_document();
  add({18}), writer.end_prompt(), add({19}), writer.end_document();
  EXPECT_EQ(writer.documents(), 4u);
  EXPECT_EQ(writer.sync("bytes", 0).prompts, 3u);
  writer.commit();
}

TEST(Task, CompletionAsksForTokensOfCompletionsAlone) {
  const TemporaryFolder folder;
  write_pairs(folder / "d");
  const auto tokens = std::make_shared<const IndexedDataset>(folder / "d");
  EXPECT_EQ(read_sidecar(folder / "d")->prompts, 3u);
  EXPECT_EQ(tokens->index().sequences(), 7u);
  EXPECT_EQ(tokens->index().documents(), 4u);
  const Dataset data = WindowedDataset(tokens, 3, 300, 0, true);
  ASSERT_EQ(samples_in(data), 3u);
  constexpr std::int64_t no = kNoTarget;
  const std::vector<std::vector<std::int64_t>> expected = {
      {no, 12, 13}, {14, 15, 16}, {17, no, 19}};
  for (std::uint64_t sample = 0; sample < 3; ++sample) {
    std::vector<std::int64_t> ids(3), targets(3);
    const std::vector<std::span<std::int64_t>> rows = {ids, targets};
    read_sample(Completion{}, data, {sample}, rows);
    EXPECT_EQ(targets, expected[sample]) << sample;
    EXPECT_EQ(ids[0], static_cast<std::int64_t>(10 + 3 * sample));
    EXPECT_EQ(count_targets(Completion{}, data, {sample}, 3),
              3 - std::ranges::count(expected[sample], no));
    EXPECT_EQ(count_targets(Causal{}, data, {sample}, 3), 3);
  }
}

// As strided evaluation does: windows overlap, and only the last tokens of each count.
TEST(Task, CountsTargetsAmongTheLastTokensOfOverlappingWindows) {
  const TemporaryFolder folder;
  write_pairs(folder / "d");
  const Dataset data = WindowedDataset(open(folder / "d"), 3, 300, 1, true);
  ASSERT_EQ(samples_in(data), 7u);
  for (std::uint64_t sample = 0; sample < samples_in(data); ++sample) {
    std::vector<std::int64_t> ids(3), targets(3);
    const std::vector<std::span<std::int64_t>> rows = {ids, targets};
    read_sample(Completion{}, data, {sample}, rows);
    EXPECT_EQ(ids[0], static_cast<std::int64_t>(10 + sample));
    for (const std::int64_t last : {1, 2, 3}) {
      EXPECT_EQ(count_targets(Completion{}, data, {sample}, last),
                last - std::count(targets.end() - last, targets.end(), kNoTarget));
      EXPECT_EQ(count_targets(Causal{}, data, {sample}, last), last);
    }
  }
}

// Against a table made by walking all documents, for windows of every length at every place.
TEST(Task, CompletionsAreFoundFromAnyToken) {
  const TemporaryFolder folder;
  write_pairs(folder / "d");
  const IndexedDataset tokens(folder / "d");
  const bool expected[] = {false, false, true, true, true, true, true, true, false, true};
  for (std::size_t first = 0; first <= 10; ++first)
    for (std::size_t size = 0; first + size <= 10; ++size) {
      const auto found = std::make_unique<bool[]>(size + 1);
      tokens.index().find_completions(first, {found.get(), size});
      for (std::size_t i = 0; i < size; ++i) EXPECT_EQ(found[i], expected[first + i]);
    }
}

}  // namespace
}  // namespace laconic
