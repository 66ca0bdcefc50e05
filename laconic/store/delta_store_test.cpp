#include "laconic/store/delta_store.hpp"

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/file/test_size_limit.hpp"
#include "laconic/store/test_delta_store.hpp"

namespace laconic {
namespace {

TEST(DeltaStore, RamIsUsedAgainAndNotAskedForMore) {
  DeltaStore store({.record_bytes = 256});
  std::set<const std::byte*> places;
  for (std::uint32_t step = 0; step < 50; ++step) {
    for (std::uint64_t key = 0; key < 10; ++key) places.insert(store.stage(key, step)->data());
    step % 3 == 0 ? store.abandon() : store.commit();
  }
  EXPECT_LE(places.size(), 20u);  // the stored ten and the staged ten
}

TEST(DeltaStore, CommitMovesNoBytes) {
  DeltaStore store({.record_bytes = 256});
  const std::byte* staged = store.stage(1, 1)->data();
  store.commit();
  EXPECT_EQ(store.find(1)->bytes.data(), staged);
}

TEST(DeltaStore, AbandonLeavesEverythingAsItWas) {
  for (const Kind kind : kKinds) {
    const TemporaryFolder folder;
    DeltaStore store(spec_of(kind, folder, 100));
    for (std::uint64_t key = 0; key < 5; ++key) put_value(store, key, 4, bytes_from(key, 100));
    store.commit();
    const auto before = store.stored_keys();
    for (std::uint64_t key = 3; key < 8; ++key) put_value(store, key, 9, bytes_from(99, 100));
    EXPECT_EQ(store.find(7)->visits, 9u);
    store.abandon();
    EXPECT_EQ(store.stored_keys(), before);
    EXPECT_FALSE(store.find(7).has_value());
    for (std::uint64_t key = 0; key < 5; ++key)
      EXPECT_TRUE(is_equal(store.find(key)->bytes, bytes_from(key, 100)));
  }
}

TEST(DeltaStore, ForgottenKeyBeginsAgainWithTheVisitsGiven) {
  for (const Kind kind : kKinds) {
    const TemporaryFolder folder;
    DeltaStore store(spec_of(kind, folder, 8));
    put_value(store, 5, 41, bytes_from(1, 8));
    store.commit();
    put_value(store, 5, 42, bytes_from(2, 8));
    store.forget(5);
    EXPECT_FALSE(store.find(5).has_value());
    put_value(store, 5, 1, bytes_from(3, 8));
    store.commit();
    EXPECT_EQ(store.find(5)->visits, 1u);
    EXPECT_TRUE(is_equal(store.find(5)->bytes, bytes_from(3, 8)));
    store.forget(5);
    store.commit();
    EXPECT_EQ(store.size(), 0u);
  }
}

TEST(DeltaStore, FullBudgetAdmitsKnownKeysAndNoOthers) {
  for (const Kind kind : kKinds) {
    const TemporaryFolder folder;
    DeltaStore store(spec_of(kind, folder, 5000, 3 * 8192 + 100));
    EXPECT_EQ(store.max_records(), 3u);
    for (const std::uint64_t key : {10u, 20u, 30u}) EXPECT_TRUE(store.stage(key, 1).has_value());
    EXPECT_FALSE(store.stage(40, 1).has_value());
    EXPECT_TRUE(store.stage(20, 2).has_value());
    store.forget(30);
    EXPECT_TRUE(store.stage(40, 1).has_value());
    store.commit();
    EXPECT_FALSE(store.stage(30, 1).has_value());
    store.forget(10);  // its place is free at once
    EXPECT_TRUE(store.stage(30, 1).has_value());
    store.abandon();
    EXPECT_TRUE(store.stage(50, 1).has_value());
    const DeltaStoreStats stats = store.stats();
    EXPECT_EQ(stats.records, 2u);
    EXPECT_EQ(stats.bytes, 2u * 8192);
    EXPECT_EQ(stats.budget_bytes, 3u * 8192 + 100);
    EXPECT_EQ(stats.refused, 2u);
  }
}

TEST(DeltaStore, BudgetBelowOneRecordAdmitsNothing) {
  DeltaStore store({.budget_bytes = 4095, .record_bytes = 1});
  EXPECT_FALSE(store.stage(1, 1).has_value());
  store.commit();
  EXPECT_EQ(store.size(), 0u);
}

TEST(DeltaStore, PrefetchedRecordsAreThereAndDroppedWhenNobodyCame) {
  const TemporaryFolder folder;
  DeltaStore store(spec_of(Kind::file_with_thread, folder, 100));
  std::vector<std::uint64_t> keys(10);
  for (std::uint64_t key = 0; key < 10; ++key) {
    keys[key] = key;
    put_value(store, key, 1, bytes_from(key, 100));
  }
  for (int step = 0; step < 2; ++step) {
    store.commit();
    store.drain();
  }
  store.commit();
  EXPECT_EQ(store.stats().ram_bytes, 0u);
  store.prefetch(keys);
  store.drain();
  store.commit();  // the hint was for the next step
  EXPECT_EQ(store.stats().ram_bytes, 1000u);
  for (std::uint64_t key = 0; key < 4; ++key)
    EXPECT_TRUE(is_equal(store.find(key)->bytes, bytes_from(key, 100)));
  EXPECT_EQ(store.stats().prefetch_hits, 4u);
  EXPECT_EQ(store.stats().prefetch_misses, 0u);
  EXPECT_EQ(store.stats().waits, 0u);
  store.commit();
  EXPECT_EQ(store.stats().ram_bytes, 0u);
  EXPECT_TRUE(store.find(9).has_value());
  EXPECT_EQ(store.stats().prefetch_misses, 1u);
  EXPECT_EQ(store.stats().waits, 1u);
}

TEST(DeltaStore, ReadAheadEndsAtItsBound) {
  const TemporaryFolder folder;
  DeltaStoreSpec spec = spec_of(Kind::file_with_thread, folder, 100);
  spec.read_ahead_bytes = 399;
  DeltaStore store(spec);
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 0; key < 10; ++key) {
    keys.push_back(key);
    put_value(store, key, 1, bytes_from(key, 100));
  }
  store.commit();
  store.drain();
  store.commit();
  store.prefetch(keys);
  EXPECT_EQ(store.stats().ram_bytes, 300u);
  for (const std::uint64_t key : keys)
    EXPECT_TRUE(is_equal(store.find(key)->bytes, bytes_from(key, 100)));
}

// commit() waits until the step before last has been written: with a disk that is slower than the
// steps, values of two steps are in RAM and those that are being staged, however many steps there
// are.
TEST(DeltaStore, ADiskThatIsTooSlowHoldsStepsUpInsteadOfFillingMemory) {
  constexpr std::uint64_t kKeys = 4, kBytes = 100;
  const TemporaryFolder folder;
  DeltaStoreSpec spec = spec_of(Kind::file_with_thread, folder, kBytes);
  spec.before_io = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  DeltaStore store(spec);
  std::uint64_t most = 0;
  for (std::uint64_t step = 0; step < 20; ++step) {
    for (std::uint64_t key = 0; key < kKeys; ++key)
      put_value(store, key, 1, bytes_from(100 * step + key, kBytes));
    most = std::max(most, store.stats().ram_bytes);
    store.commit();
    most = std::max(most, store.stats().ram_bytes);
  }
  EXPECT_LE(most, 3 * kKeys * kBytes);
  EXPECT_GE(store.stats().waits, 18U);
  store.drain();
  for (std::uint64_t key = 0; key < kKeys; ++key)
    EXPECT_TRUE(is_equal(stored_value(store, key), bytes_from(1900 + key, kBytes)));
}

TEST(DeltaStore, ErrorOfTheThreadReachesTheCallerEachTime) {
  for (const bool asynchronous : {false, true}) {
    const TemporaryFolder folder;
    const std::string path = folder / "scratch";
    bool is_broken = false;
    DeltaStore store(
        {.path = path, .record_bytes = 100, .asynchronous = asynchronous, .before_io = [&] {
           if (is_broken) throw SystemError(path, "write", EIO);
         }});
    put_value(store, 1, 1, bytes_from(1, 100));
    store.commit();
    store.drain();
    is_broken = true;
    put_value(store, 1, 2, bytes_from(2, 100));
    put_value(store, 2, 1, bytes_from(2, 100));
    std::string message;
    try {
      store.commit();
      store.drain();
    } catch (const SystemError& error) {
      message = error.what();
    }
    EXPECT_EQ(message, path + ": cannot write: Input/output error");
    EXPECT_THROW(store.find(1), SystemError);
    EXPECT_THROW(store.stage(1, 3), SystemError);
    EXPECT_THROW(store.commit(), SystemError);
    EXPECT_THROW(store.drain(), SystemError);
    store.abandon();
    store.forget(1);
    store.clear();
    EXPECT_EQ(store.size(), 0u);
  }
}

// A file that cannot grow: the message names it, and the store goes on without the new key.
void expect_full(DeltaStore& store, const std::string& path, const std::string& reason) {
  std::uint64_t key = 0;
  std::string message;
  try {
    for (; key < 1000; ++key) put_value(store, key, 1, bytes_from(key, store.record_bytes()));
  } catch (const SystemError& error) {
    message = error.what();
  }
  EXPECT_TRUE(message.starts_with(path + ": cannot grow by ")) << message;
  EXPECT_TRUE(message.ends_with(reason)) << message;
  EXPECT_FALSE(store.contains(key));
  EXPECT_THROW(store.stage(key, 1), SystemError);
  store.commit();
  store.drain();
  EXPECT_EQ(store.size(), key);
  for (std::uint64_t known = 0; known < key; ++known)
    EXPECT_TRUE(is_equal(stored_value(store, known), bytes_from(known, store.record_bytes())));
}

TEST(DeltaStore, FileThatMayNotGrowIsAnErrorAndNotASignal) {
  for (const Kind kind : {Kind::file, Kind::file_with_thread}) {
    const TemporaryFolder folder;
    const std::uint64_t record_bytes = std::uint64_t{8} << 20;
    const SizeLimit limit(rlim_t{100} << 20);
    DeltaStore store(spec_of(kind, folder, record_bytes));
    expect_full(store, folder / "scratch", "File too large");
    EXPECT_EQ(store.size(), 8u);
  }
}

TEST(DeltaStore, FullDiskIsAnErrorAndNotASignal) {
  const TemporaryFolder folder;
  if (::mount("none", folder.path().c_str(), "tmpfs", 0, "size=70m") != 0)
    GTEST_SKIP() << "may not mount a small disk here";
  {
    DeltaStore store(spec_of(Kind::file_with_thread, folder, std::uint64_t{1} << 20));
    expect_full(store, folder / "scratch", "No space left on device");
  }
  ::umount(folder.path().c_str());
}

TEST(DeltaStore, RecordsOfNoBytesStillCountVisits) {
  for (const Kind kind : kKinds) {
    const TemporaryFolder folder;
    DeltaStore store(spec_of(kind, folder, 0, 1));
    const auto room = store.stage(1, 7);
    ASSERT_TRUE(room.has_value());
    EXPECT_TRUE(room->empty());
    store.commit();
    EXPECT_EQ(store.find(1)->visits, 7u);
    EXPECT_TRUE(store.find(1)->bytes.empty());
  }
}

TEST(DeltaStore, ScratchFileHasNoNameAndIsFreshEachTime) {
  const TemporaryFolder folder;
  const DeltaStoreSpec spec = spec_of(Kind::file_with_thread, folder, 100);
  auto first = std::make_unique<DeltaStore>(spec);
  put_value(*first, 1, 1, bytes_from(1, 100));
  first->commit();
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  DeltaStore second(spec);  // the same path, another file
  EXPECT_FALSE(second.find(1).has_value());
  put_value(second, 1, 1, bytes_from(2, 100));
  second.commit();
  EXPECT_TRUE(is_equal(stored_value(*first, 1), bytes_from(1, 100)));
  first.reset();  // perhaps before it has written
  EXPECT_TRUE(is_equal(stored_value(second, 1), bytes_from(2, 100)));
}

TEST(DeltaStore, FileOfSomebodyElseIsNotTouched) {
  const TemporaryFolder folder;
  std::ofstream(folder / "scratch") << "thesis";
  EXPECT_THROW(DeltaStore(spec_of(Kind::file, folder, 100)), SystemError);
  EXPECT_EQ(std::filesystem::file_size(folder / "scratch"), 6u);
  EXPECT_THROW(DeltaStore({.path = folder / "no/such/folder", .record_bytes = 1}), SystemError);
}

TEST(DeltaStore, ClearForgetsAllAndTheStoreGoesOn) {
  for (const Kind kind : kKinds) {
    const TemporaryFolder folder;
    DeltaStoreSpec spec = spec_of(kind, folder, 5000, 2 * 8192);
    spec.before_io = random_delays(1);
    DeltaStore store(spec);
    for (int round = 0; round < 3; ++round) {
      for (std::uint64_t key = 0; key < 2; ++key)
        put_value(store, key + 10 * round, 1, bytes_from(key, 5000));
      if (round != 1) store.commit();
      store.clear();
      EXPECT_EQ(store.size(), 0u);
      EXPECT_FALSE(store.contains(10 * round));
      EXPECT_EQ(store.stats().ram_bytes, 0u);
    }
  }
}

}  // namespace
}  // namespace laconic
