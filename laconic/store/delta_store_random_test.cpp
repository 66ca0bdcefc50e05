// A delta store against its model, with random calls and random delays of the disk.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "laconic/file/test_folder.hpp"
#include "laconic/store/delta_store.hpp"
#include "laconic/store/test_delta_store.hpp"

namespace laconic {
namespace {

// Drives a store and the model with the same random calls and compares what they say.
class Twin {
 public:
  Twin(const DeltaStoreSpec& spec, std::uint64_t seed) : random_(seed), store_(spec) {
    model_.max_records = store_.max_records();
  }

  void step() {
    for (std::uint64_t i = draw(12); i > 0; --i) act();
    if (draw(2) == 0) prefetch();
    for (const Held& held : held_)
      ASSERT_TRUE(is_equal(held.bytes, held.expected)) << "find() of key " << held.key;
    held_.clear();
    end();
    ASSERT_EQ(store_.stored_keys(), model_.stored_keys());
    ASSERT_EQ(store_.size(), model_.stored.size());
    ASSERT_EQ(store_.stats().refused, refused_);
  }

  void compare_all() {
    for (const auto& [key, value] : model_.stored)
      ASSERT_TRUE(is_equal(stored_value(store_, key), value.bytes)) << "key " << key;
  }

  DeltaStore& store() { return store_; }
  std::uint64_t refused() const { return refused_; }

 private:
  struct Held {
    std::uint64_t key;
    ByteView bytes;
    Bytes expected;
  };

  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  std::uint64_t draw_key() { return ~std::uint64_t{0} - draw(24); }

  void act() {
    const std::uint64_t key = draw_key();
    const std::uint64_t choice = draw(40);
    if (choice < 14) return find(key);
    if (choice < 34) return stage(key);
    if (choice < 37) return forget(key);
    if (choice < 38) return draw(2) == 0 ? store_.drain() : stage_forget(key);
    prefetch();
  }

  void find(std::uint64_t key) {
    const auto expected = model_.find(key);
    const auto found = store_.find(key);
    ASSERT_EQ(found.has_value(), expected.has_value()) << "key " << key;
    ASSERT_EQ(store_.contains(key), expected.has_value());
    if (!found) return;
    EXPECT_EQ(found->visits, expected->visits);
    ASSERT_TRUE(is_equal(found->bytes, expected->bytes)) << "key " << key;
    held_.push_back({key, found->bytes, expected->bytes});
  }

  // Half of the time as a link does it: read the old value while the new one is written.
  void stage(std::uint64_t key) {
    if (draw(2) == 0) find(key);
    const auto visits = static_cast<std::uint32_t>(random_());
    const Bytes value = bytes_from(random_(), store_.record_bytes());
    const auto room = store_.stage(key, visits);
    const bool is_admitted = model_.stage(key, {value, visits});
    ASSERT_EQ(room.has_value(), is_admitted) << "key " << key;
    refused_ += is_admitted ? 0 : 1;
    if (!room) return;
    ASSERT_EQ(room->size(), store_.record_bytes());
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(room->data()) % kRecordAlignment, 0u);
    for (const Held& held : held_) ASSERT_NE(held.bytes.data(), room->data());
    std::ranges::copy(value, room->begin());
  }

  void forget(std::uint64_t key) {
    release(key);
    store_.forget(key);
    model_.forget(key);
    find(key);
  }

  void stage_forget(std::uint64_t key) {
    store_.stage_forget(key);
    model_.stage_forget(key);
    find(key);
  }

  void release(std::uint64_t key) {
    std::erase_if(held_, [&](const Held& held) { return held.key == key; });
  }

  void prefetch() {
    std::vector<std::uint64_t> keys(draw(8));
    for (std::uint64_t& key : keys) key = draw_key();
    store_.prefetch(keys);
  }

  void end() {
    if (draw(4) == 0) {
      store_.abandon();
      model_.abandon();
    } else {
      store_.commit();
      model_.commit();
    }
  }

  std::mt19937_64 random_;
  DeltaStore store_;
  DeltaStoreModel model_;
  std::vector<Held> held_;
  std::uint64_t refused_ = 0;
};

TEST(DeltaStore, RandomCallsMeanWhatTheModelSays) {
  for (const Kind kind : kKinds)
    for (const std::uint64_t record_bytes : {0u, 1u, 100u, 5000u})
      for (const std::uint64_t slots : {0u, 5u}) {
        const std::uint64_t seed = 1000 * record_bytes + slots;
        SCOPED_TRACE(fmt::format("kind {} seed {}", static_cast<int>(kind), seed));
        const TemporaryFolder folder;
        DeltaStoreSpec spec = spec_of(kind, folder, record_bytes, slots * 8192);
        if (spec.asynchronous) spec.before_io = random_delays(seed);
        Twin twin(spec, seed);
        for (int step = 0; step < 1500 && !testing::Test::HasFatalFailure(); ++step) {
          twin.step();
          if (step % 100 == 0) twin.compare_all();
        }
        twin.compare_all();
        EXPECT_EQ(twin.refused() > 0, slots > 0 && record_bytes > 0);
      }
}

TEST(DeltaStore, NoBufferIsLost) {
  for (const Kind kind : {Kind::file, Kind::file_with_thread}) {
    const TemporaryFolder folder;
    DeltaStoreSpec spec = spec_of(kind, folder, 64);
    spec.before_io = random_delays(3);
    Twin twin(spec, 3);
    for (int step = 0; step < 300; ++step) {
      twin.step();
      // 24 keys: each may be in RAM, waiting to be written twice, read and staged again.
      EXPECT_LT(twin.store().stats().ram_bytes, 64u * 24 * 5);
    }
    for (int step = 0; step < 3; ++step) {
      twin.store().drain();
      twin.store().commit();
    }
    EXPECT_EQ(twin.store().stats().ram_bytes, 0u);
    twin.compare_all();
  }
}

}  // namespace
}  // namespace laconic
