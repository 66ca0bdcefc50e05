#include "laconic/data/task.hpp"

#include <gtest/gtest.h>

#include "laconic/data/indexed_writer.hpp"
#include "laconic/data/test_data.hpp"

namespace laconic {
namespace {

TEST(Task, CausalAsksForTheNextTokenAtEveryPosition) {
  const TemporaryFolder folder;
  IndexedWriter writer(folder / "d", 300);
  writer.add(std::vector<std::int32_t>{10, 11, 12, 13, 14, 15, 16});
  writer.end_document();
  writer.sync("bytes", 0);
  writer.commit();
  const WindowedDataset data(std::make_shared<const IndexedDataset>(folder / "d"), 3, 300);
  const std::vector<FieldSpec> fields = fields_of(Causal{}, 3);
  EXPECT_EQ(fields, (std::vector<FieldSpec>{{"ids", {3}}, {"targets", {3}}}));
  EXPECT_EQ(predicted_field(Causal{}), "targets");
  std::vector<std::int64_t> ids(3), targets(3);
  const std::vector<std::span<std::int64_t>> rows = {ids, targets};
  read_sample(Causal{}, data, 1, rows);
  EXPECT_EQ(ids, (std::vector<std::int64_t>{13, 14, 15}));
  EXPECT_EQ(targets, (std::vector<std::int64_t>{14, 15, 16}));
}

}  // namespace
}  // namespace laconic
