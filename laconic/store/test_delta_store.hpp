// store/test_delta_store.hpp — for tests: the kinds of delta store, and what one means, as two
// maps.
//
// The model is slow, single-threaded and uses no buffer twice. A store must
// answer like it whatever it keeps where.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/store/delta_store.hpp"

namespace laconic {

enum class Kind { ram, file, file_with_thread };
inline constexpr Kind kKinds[] = {Kind::ram, Kind::file, Kind::file_with_thread};

inline DeltaStoreSpec spec_of(Kind kind, const TemporaryFolder& folder, std::uint64_t record_bytes,
                              std::uint64_t budget_bytes = 0) {
  return {.path = kind == Kind::ram ? "" : folder / "scratch",
          .budget_bytes = budget_bytes,
          .record_bytes = record_bytes,
          .asynchronous = kind == Kind::file_with_thread};
}

// Mostly short, at times long enough for the caller to overtake by several steps.
inline std::function<void()> random_delays(std::uint64_t seed) {
  return [random = std::make_shared<std::mt19937_64>(seed)] {
    const auto draw = (*random)() % 64;
    if (draw == 0) std::this_thread::sleep_for(std::chrono::microseconds(500));
    if (draw < 8) std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (draw < 32) std::this_thread::yield();
  };
}

inline bool put_value(DeltaStore& store, std::uint64_t key, std::uint32_t visits, ByteView value) {
  const auto room = store.stage(key, visits);
  if (room) std::ranges::copy(value, room->begin());
  return room.has_value();
}

inline bool is_equal(ByteView a, ByteView b) {
  return std::ranges::equal(a, b);
}

inline Bytes stored_value(DeltaStore& store, std::uint64_t key) {
  Bytes bytes(store.record_bytes());
  store.read_stored(key, bytes);
  return bytes;
}

inline Bytes bytes_from(std::uint64_t seed, std::size_t size) {
  Bytes bytes(size);
  for (std::byte& b : bytes) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    b = static_cast<std::byte>(seed >> 56);
  }
  return bytes;
}

struct DeltaStoreModel {
  struct Value {
    Bytes bytes;
    std::uint32_t visits = 0;
  };
  std::uint64_t max_records = std::numeric_limits<std::uint64_t>::max();
  std::map<std::uint64_t, Value> stored;
  std::map<std::uint64_t, std::vector<std::optional<Value>>> staged;  // empty: stage_forget()

  std::optional<Value> find(std::uint64_t key) const {
    if (const auto at = staged.find(key); at != staged.end()) return at->second.back();
    const auto at = stored.find(key);
    return at == stored.end() ? std::nullopt : std::optional(at->second);
  }
  std::size_t known() const {
    std::size_t count = stored.size();
    for (const auto& [key, values] : staged) count += stored.contains(key) ? 0 : 1;
    return count;
  }
  bool stage(std::uint64_t key, Value value) {
    if (!staged.contains(key) && !stored.contains(key) && known() >= max_records) return false;
    staged[key].emplace_back(std::move(value));
    return true;
  }
  void commit() {
    for (auto& [key, values] : staged)
      if (values.back())
        stored[key] = *values.back();
      else
        stored.erase(key);
    staged.clear();
  }
  void abandon() { staged.clear(); }
  void forget(std::uint64_t key) {
    staged.erase(key);
    stored.erase(key);
  }
  void stage_forget(std::uint64_t key) {
    if (stored.contains(key))
      staged[key].emplace_back();
    else
      staged.erase(key);
  }
  std::vector<DeltaStore::StoredKey> stored_keys() const {
    std::vector<DeltaStore::StoredKey> keys;
    for (const auto& [key, value] : stored) keys.push_back({key, value.visits});
    return keys;
  }
};

}  // namespace laconic
