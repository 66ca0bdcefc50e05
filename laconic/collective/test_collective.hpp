// collective/test_collective.hpp — for tests: collectives of threads, and what they should give.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "laconic/collective/run.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic {

constexpr CollectiveKind kAllKinds[] = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                                        CollectiveKind::all_gather, CollectiveKind::broadcast,
                                        CollectiveKind::all_to_all, CollectiveKind::barrier};

template <class T>
constexpr Dtype dtype_of() {
  return sizeof(T) == 4 ? Dtype::f32 : Dtype::f64;
}

inline Group group_of_size(int members) {
  Group group(static_cast<std::size_t>(members));
  std::iota(group.begin(), group.end(), 0);
  return group;
}

inline CollectiveSpec spec_of(CollectiveKind kind, Algorithm algorithm, int members,
                              std::uint64_t elements, Dtype dtype = Dtype::f32) {
  CollectiveSpec spec;
  spec.traffic = Traffic::dp_gradient;
  spec.kind = kind;
  spec.algorithm = algorithm;
  spec.group = group_of_size(members);
  spec.dtype = dtype;
  if (const int chunks = chunks_of(kind, algorithm, members); chunks > 0)
    spec.offsets = cut(elements, chunks, 1);
  return spec;
}

template <class T>
using Buffers = std::vector<std::vector<T>>;  // by member

// Numbers whose sums depend on the order, and on who brought what.
template <class T>
Buffers<T> random_buffers(int members, std::uint64_t elements, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<T> uniform(-1, 1);
  Buffers<T> buffers(static_cast<std::size_t>(members));
  for (auto& buffer : buffers) {
    buffer.resize(elements);
    for (T& value : buffer) value = uniform(random) * static_cast<T>(1 << (random() % 12));
  }
  return buffers;
}

template <class T>
bool same_elements(const std::vector<T>& a, const std::vector<T>& b, std::uint64_t begin,
                   std::uint64_t end) {
  return end == begin ||
         std::memcmp(a.data() + begin, b.data() + begin, (end - begin) * sizeof(T)) == 0;
}

template <class T>
std::byte* bytes_in(std::vector<T>& buffer) {
  return reinterpret_cast<std::byte*>(buffer.data());
}

// A step with one operation, in the calling thread.
inline void step_once(Engine& engine, Collective& collective, std::uint64_t step, std::byte* buffer,
                      bool exact = false) {
  collective.begin(step);
  run(engine, *collective.operation(buffer, 0, exact));
  collective.commit();
}

// Runs `body` for each member with an engine of its own, and lets everything leave at the end.
inline void run_members(int members, const std::function<void(Engine&)>& body,
                        const EngineOptions& options = {}) {
  run_ranks(members, [&](Transport& transport) {
    Engine engine(transport, options);
    body(engine);
    engine.flush();
  });
}

}  // namespace laconic
