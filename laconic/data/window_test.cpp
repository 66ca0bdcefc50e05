#include "laconic/data/window.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
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

// Every order of up to 20 samples, 6 shards and 4 samples of each in a batch.
void for_every_small_order(const std::function<void(const SampleOrder&)>& expect) {
  for (std::uint64_t shards = 1; shards <= 6; ++shards)
    for (std::uint64_t samples = shards; samples <= 20; ++samples)
      for (std::uint64_t share = 1; share <= 4; ++share)
        for (const bool shuffle : {false, true}) {
          const SampleOrder order{7, samples, shuffle, shards, shards * share};
          SCOPED_TRACE(testing::Message() << samples << " samples, " << shards << " shards of "
                                          << share << ", shuffle " << shuffle);
          ASSERT_TRUE(check(order).empty());
          expect(order);
        }
}

TEST(Sampler, EveryEpochOfAShardVisitsEachOfItsSamplesOnce) {
  for_every_small_order([](const SampleOrder& order) {
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::multiset<std::uint64_t>> seen;
    const std::uint64_t batches = 3 * order.samples;
    for (std::uint64_t position = 0; position < batches * order.batch; ++position)
      seen[{place_of(order, position).shard, epoch_of(order, position)}].insert(
          sample_at(order, position));
    for (std::uint64_t shard = 0; shard < order.shards; ++shard) {
      std::multiset<std::uint64_t> all;
      for (std::uint64_t i = shard; i < order.samples; i += order.shards) all.insert(i);
      ASSERT_EQ(shard_size(order, shard), all.size());
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        const auto found = seen.at({shard, epoch});
        ASSERT_EQ(found, all) << "shard " << shard << ", epoch " << epoch;
      }
    }
  });
}

TEST(Sampler, ARankSeesItsOwnShardsAlone) {
  for_every_small_order([](const SampleOrder& order) {
    for (std::uint64_t dp = 1; dp <= order.shards; ++dp) {
      if (order.shards % dp != 0) continue;
      const std::uint64_t local = order.batch / dp, shards = order.shards / dp;
      for (std::uint64_t position = 0; position < 40 * order.batch; ++position) {
        const std::uint64_t member = position % order.batch / local;
        ASSERT_EQ(sample_at(order, position) % order.shards / shards, member) << "dp " << dp;
      }
    }
  });
}

TEST(Sampler, OneShardIsTheOrderWithoutShardsWhateverTheBatch) {
  for (const bool shuffle : {false, true})
    for (std::uint64_t batch = 1; batch < 9; ++batch)
      for (std::uint64_t position = 0; position < 100; ++position)
        ASSERT_EQ(sample_at({5, 13, shuffle, 1, batch}, position),
                  sample_at({5, 13, shuffle}, position));
}

// What runs of before had, which must continue as they began.
TEST(Sampler, TheOrderIsFixedForever) {
  const auto first = [](const SampleOrder& order) {
    std::vector<std::uint64_t> ids;
    for (std::uint64_t position = 0; position < 16; ++position)
      ids.push_back(sample_at(order, position));
    return ids;
  };
  EXPECT_EQ(first({42, 10, true}),
            (std::vector<std::uint64_t>{1, 4, 7, 8, 6, 3, 9, 5, 2, 0, 2, 7, 3, 8, 9, 1}));
  EXPECT_EQ(first({42, 10, true, 2, 4}),
            (std::vector<std::uint64_t>{2, 8, 7, 5, 6, 4, 1, 3, 0, 4, 9, 9, 2, 6, 7, 5}));
}

TEST(Sampler, ShardsAreShuffledDifferently) {
  const SampleOrder order{1, 2000, true, 2, 2};
  int same = 0;
  for (std::uint64_t i = 0; i < 1000; ++i)
    same += sample_at(order, 2 * i) + 1 == sample_at(order, 2 * i + 1);
  EXPECT_LT(same, 10);
}

TEST(Sampler, ImpossibleOrdersAreRefusedWithTheNumbers) {
  EXPECT_EQ(to_text(check(SampleOrder{1, 0})), "data: an order of no samples");
  EXPECT_EQ(to_text(check(SampleOrder{1, 2, true, 3, 8})),
            "data.shards: shards = 3 does not divide a batch of 8\n"
            "data.shards: shards = 3, but there are only 2 samples");
  EXPECT_EQ(to_text(check(SampleOrder{1, 9, true, 3})),
            "data.shards: shards = 3 does not divide a batch of 0");
  EXPECT_EQ(to_text(check(SampleOrder{1, 9, true, 0, 4})),
            "data.shards: shards = 0: there is at least one");
}

}  // namespace
}  // namespace laconic
