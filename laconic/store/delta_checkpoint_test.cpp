#include "laconic/store/delta_checkpoint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/file/safetensors_writer.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/file/test_size_limit.hpp"
#include "laconic/store/test_delta_store.hpp"

namespace laconic {
namespace {

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

void put_seed(DeltaStore& store, std::uint64_t key, std::uint32_t visits, std::uint64_t seed) {
  put_value(store, key, visits, bytes_from(seed, store.record_bytes()));
}

std::string saved(DeltaStore& store, const std::string& path) {
  save_records(store, path);
  return std::string(MappedFile(path).text());
}

// What a store refuses to load, as text.
std::string refusal(DeltaStore& store, const std::string& path) {
  try {
    load_records(store, path);
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

TEST(DeltaCheckpoint, RoundTripBetweenRamAndFileIsExact) {
  for (const std::uint64_t record_bytes : {0u, 1u, 5000u})
    for (const std::uint64_t count : {0u, 1u, 100u}) {
      const TemporaryFolder folder;
      DeltaStore ram({.record_bytes = record_bytes});
      for (std::uint64_t i = 0; i < count; ++i)
        put_seed(ram, kHuge - i * i, static_cast<std::uint32_t>(~i), i);
      ram.commit();
      const std::string first = saved(ram, folder / "a");

      DeltaStore file({.path = folder / "scratch", .record_bytes = record_bytes});
      put_seed(file, 12345, 1, 1);  // replaced
      file.commit();
      put_seed(file, 54321, 1, 1);  // staged, replaced
      load_records(file, folder / "a");
      EXPECT_EQ(file.stored_keys(), ram.stored_keys());
      EXPECT_TRUE(saved(file, folder / "b") == first);

      DeltaStore again({.record_bytes = record_bytes});
      load_records(again, folder / "b");
      EXPECT_TRUE(saved(again, folder / "c") == first);
      for (std::uint64_t i = 0; i < count; ++i)
        EXPECT_TRUE(
            std::ranges::equal(again.find(kHuge - i * i)->bytes, bytes_from(i, record_bytes)));
    }
}

TEST(DeltaCheckpoint, HistoryDoesNotShow) {
  const TemporaryFolder folder;
  DeltaStore one({.record_bytes = 10});
  DeltaStore other({.path = folder / "scratch", .record_bytes = 10});
  for (std::uint64_t key = 0; key < 50; ++key) put_seed(one, key, 2, key);
  one.commit();
  for (std::uint64_t key = 60; key-- > 0;) put_seed(other, key, 1, 7);
  other.commit();
  for (std::uint64_t key = 50; key < 60; ++key) other.forget(key);
  for (std::uint64_t key = 50; key-- > 0;) put_seed(other, key, 2, key);
  other.commit();
  EXPECT_TRUE(saved(one, folder / "a") == saved(other, folder / "b"));
}

TEST(DeltaCheckpoint, StagedValuesAreNotSavedAndStayStaged) {
  const TemporaryFolder folder;
  DeltaStore store({.record_bytes = 10});
  put_seed(store, 1, 1, 1);
  store.commit();
  const std::string before = saved(store, folder / "a");
  put_seed(store, 1, 2, 2);
  put_seed(store, 2, 1, 3);
  EXPECT_TRUE(saved(store, folder / "b") == before);
  store.commit();
  EXPECT_EQ(store.size(), 2u);
}

TEST(DeltaCheckpoint, DelaysOfTheDiskDoNotShowInAThousandSteps) {
  const TemporaryFolder folder;
  std::mt19937_64 delay(5);
  const auto run = [&](const DeltaStoreSpec& spec, const std::string& path) {
    DeltaStore store(spec);
    std::mt19937_64 random(17);
    std::vector<std::uint64_t> now(4);
    std::vector<std::uint64_t> next(4);
    for (int step = 0; step < 1000; ++step) {
      for (std::uint64_t& key : next) key = random() % 40;
      for (const std::uint64_t key : now) {
        const auto old = store.find(key);
        const std::uint32_t visits = old ? old->visits + 1 : 1;
        const auto room = store.stage(key, visits);
        for (std::size_t i = 0; i < room->size(); ++i)  // new = f(old): an error would spread
          (*room)[i] = static_cast<std::byte>((old ? std::to_integer<int>(old->bytes[i]) * 5 : 3) +
                                              static_cast<int>(key + i));
      }
      store.prefetch(next);
      random() % 10 == 0 ? store.abandon() : store.commit();
      std::swap(now, next);
    }
    return saved(store, path);
  };
  const auto pause = [&] {
    std::this_thread::sleep_for(std::chrono::microseconds(delay() % 4 == 0 ? 300 : 0));
  };
  const std::string scratch = folder / "scratch";
  const std::string expected = run({.record_bytes = 3000}, folder / "a");
  const auto synchronous =
      run({.path = scratch, .record_bytes = 3000, .asynchronous = false}, folder / "b");
  const auto asynchronous = run({.path = scratch, .record_bytes = 3000}, folder / "c");
  const auto delayed =
      run({.path = scratch, .record_bytes = 3000, .before_io = pause}, folder / "d");
  EXPECT_TRUE(synchronous == expected);
  EXPECT_TRUE(asynchronous == expected);
  EXPECT_TRUE(delayed == expected);
}

TEST(DeltaCheckpoint, FileThatDoesNotFitIsRefusedAndTheStoreIsAsBefore) {
  const TemporaryFolder folder;
  DeltaStore source({.record_bytes = 10});
  for (std::uint64_t key = 0; key < 3; ++key) put_seed(source, key, 1, key);
  source.commit();
  save_records(source, folder / "three");
  SafetensorsWriter twice(
      folder / "twice",
      {{"keys", Dtype::i64, {3}}, {"visits", Dtype::i32, {3}}, {"records", Dtype::u8, {3, 10}}});
  const std::vector<std::uint64_t> keys = {4, 9, 4};
  twice.write(std::as_bytes(std::span(keys)));
  twice.write(Bytes(12));
  twice.write(Bytes(30));
  twice.commit();
  SafetensorsWriter scalar(folder / "scalar", {{"keys", Dtype::i64, {}}});
  scalar.write(Bytes(8));
  scalar.commit();

  DeltaStore wide({.record_bytes = 12});
  EXPECT_EQ(refusal(wide, folder / "three"),
            folder / "three" +
                ": records: U8 [3, 10], where this store needs U8 [3, 12]; it belongs "
                "to another run; use this run's own checkpoint");
  DeltaStore store({.budget_bytes = 2 * 4096, .record_bytes = 10});
  put_seed(store, 77, 1, 1);
  store.commit();
  EXPECT_EQ(refusal(store, folder / "three"),
            folder / "three" + ": keys: 3 records, where the budget admits 2; raise the budget");
  EXPECT_NE(refusal(store, folder / "twice").find("keys: key 4 stands there twice"),
            std::string::npos);
  EXPECT_NE(refusal(store, folder / "scalar").find("keys: I64 []"), std::string::npos);
  EXPECT_NE(refusal(store, folder / "missing").find("does not exist"), std::string::npos);
  EXPECT_EQ(store.stored_keys(), (std::vector<DeltaStore::StoredKey>{{77, 1}}));
}

TEST(DeltaCheckpoint, FullDiskLeavesTheOldFile) {
  const TemporaryFolder folder;
  DeltaStore store({.record_bytes = 100'000});
  put_seed(store, 1, 1, 1);
  store.commit();
  const std::string before = saved(store, folder / "a");
  for (std::uint64_t key = 0; key < 30; ++key) put_seed(store, key, 2, key);
  store.commit();
  {
    const SizeLimit limit(1'000'000);
    EXPECT_THROW(save_records(store, folder / "a"), SystemError);
  }
  EXPECT_TRUE(MappedFile(folder / "a").text() == before);
}

}  // namespace
}  // namespace laconic
