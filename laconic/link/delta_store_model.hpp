// link/delta_store_model.hpp — for tests: what a delta store means, as two maps.
//
// Slow, single-threaded and without any buffer that is used twice. The store must
// answer like it whatever it keeps where.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "laconic/base/bytes.hpp"
#include "laconic/link/delta_store.hpp"

namespace laconic {

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
  std::map<std::uint64_t, std::vector<Value>> staged;

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
    if (!find(key) && known() >= max_records) return false;
    staged[key].push_back(std::move(value));
    return true;
  }
  void unstage(std::uint64_t key) {
    const auto at = staged.find(key);
    if (at == staged.end()) return;
    at->second.pop_back();
    if (at->second.empty()) staged.erase(at);
  }
  void commit() {
    for (auto& [key, values] : staged) stored[key] = values.back();
    staged.clear();
  }
  void abandon() { staged.clear(); }
  void forget(std::uint64_t key) {
    staged.erase(key);
    stored.erase(key);
  }
  std::vector<DeltaStore::StoredKey> stored_keys() const {
    std::vector<DeltaStore::StoredKey> keys;
    for (const auto& [key, value] : stored) keys.push_back({key, value.visits});
    return keys;
  }
};

}  // namespace laconic
