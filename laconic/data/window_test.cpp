#include "laconic/data/window.hpp"

#include <gtest/gtest.h>

#include <set>

#include "laconic/base/error.hpp"
#include "laconic/data/indexed_writer.hpp"
#include "laconic/data/sampler.hpp"
#include "laconic/data/test_data.hpp"

namespace laconic {
namespace {

std::shared_ptr<const IndexedDataset> counting_tokens(const std::string& prefix, int count) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(i);
  IndexedWriter writer(prefix, 300);
  writer.add(tokens);
  writer.end_document();
  writer.sync("bytes", 0);
  writer.commit();
  return std::make_shared<const IndexedDataset>(prefix);
}

TEST(Window, EverySampleOfEverySmallDatasetIsItsWindow) {
  const TemporaryFolder folder;
  for (int count = 0; count < 20; ++count) {
    const auto tokens = counting_tokens(folder / "d", count);
    for (std::uint64_t window = 1; window < 22; ++window) {
      SCOPED_TRACE(testing::Message() << count << " tokens, window " << window);
      const std::uint64_t samples = sample_count(tokens->tokens(), window);
      if (samples == 0) {
        EXPECT_LT(static_cast<std::uint64_t>(count), window + 1);
        EXPECT_THROW(WindowedDataset(tokens, window, 300), ConfigError);
        continue;
      }
      const WindowedDataset dataset(tokens, window, 300);
      ASSERT_EQ(dataset.samples(), samples);
      std::vector<std::int64_t> out(window + 1);
      for (std::uint64_t s = 0; s < samples; ++s) {
        dataset.read(s, out);
        for (std::uint64_t i = 0; i <= window; ++i)
          ASSERT_EQ(out[i], static_cast<std::int64_t>(s * window + i));
      }
      ASSERT_LE(samples * window + 1, static_cast<std::uint64_t>(count));
      ASSERT_GT((samples + 1) * window + 1, static_cast<std::uint64_t>(count));
    }
  }
}

TEST(Window, ErrorsHoldTheNumbers) {
  const TemporaryFolder folder;
  const auto tokens = counting_tokens(folder / "d", 100);
  const auto too_long = [&] { WindowedDataset(tokens, 100, 300); };
  LACONIC_EXPECT_MENTIONS(message_of<ConfigError>(too_long), "has 100 tokens");
  const auto too_small = [&] { WindowedDataset(tokens, 10, 99); };
  LACONIC_EXPECT_MENTIONS(message_of<FileError>(too_small), "0 to 99");
  EXPECT_NO_THROW(WindowedDataset(tokens, 10, 100));
  EXPECT_THROW(WindowedDataset(tokens, 0, 100), ConfigError);
}

TEST(Sampler, EveryEpochVisitsEverySampleOnce) {
  for (std::uint64_t samples = 1; samples < 60; ++samples) {
    for (const bool shuffle : {false, true}) {
      const SampleOrder order{42, samples, shuffle};
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        std::set<std::uint64_t> seen;
        for (std::uint64_t i = 0; i < samples; ++i) {
          const std::uint64_t position = epoch * samples + i;
          ASSERT_EQ(epoch_of(order, position), epoch);
          seen.insert(sample_at(order, position));
        }
        ASSERT_EQ(seen.size(), samples);
        ASSERT_EQ(*seen.rbegin(), samples - 1);
      }
    }
  }
}

TEST(Sampler, EpochsAndSeedsDifferAndUnshuffledIsCounting) {
  const SampleOrder order{1, 1000, true};
  int same_epoch = 0, same_seed = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    same_epoch += sample_at(order, i) == sample_at(order, 1000 + i);
    same_seed += sample_at(order, i) == sample_at({2, 1000, true}, i);
    EXPECT_EQ(sample_at({1, 1000, false}, 1000 + i), i);
  }
  EXPECT_LT(same_epoch, 10);
  EXPECT_LT(same_seed, 10);
}

TEST(Sampler, BatchesTileThePositions) {
  for (std::uint64_t size = 1; size < 9; ++size)
    for (std::uint64_t batch = 0; batch < 9; ++batch)
      EXPECT_EQ(positions_of_batch(batch, size).end, positions_of_batch(batch + 1, size).begin);
  EXPECT_EQ(positions_of_batch(3, 8), (PositionRange{24, 32}));
}

}  // namespace
}  // namespace laconic
