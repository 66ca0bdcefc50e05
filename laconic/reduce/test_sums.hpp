// reduce/test_sums.hpp — for tests: small blocks, their gradients, and ranks that sum them.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "laconic/base/philox.hpp"
#include "laconic/reduce/gradient_sum.hpp"
#include "laconic/reduce/test_model.hpp"
#include "laconic/transport/in_process.hpp"

namespace laconic::test {

// Matrices that low rank shrinks and some that it does not, a bias, a scalar; blocks smaller than
// a chunk's grain, and one of several chunks even for eight ranks.
inline const std::vector<BlockLayout> kBlocks = {
    {"embedding", {{"tokens", {Dtype::f32, {60, 40}}}, {"places", {Dtype::f32, {3, 5}}}}},
    {"layer",
     {{"weight", {Dtype::f32, {50, 44}}},
      {"bias", {Dtype::f32, {44}}},
      {"gain", {Dtype::f32, {}}}}},
    {"small", {{"shift", {Dtype::f32, {7}}}}},
    {"head", {{"out", {Dtype::f32, {5, 6, 20}}}}}};

template <class T>
using Blocks = std::vector<std::vector<T>>;

template <class T>
Blocks<T> gradients(const std::vector<BlockLayout>& blocks, int rank, std::uint64_t step,
                    double deviation = 1) {
  Blocks<T> values;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    values.emplace_back(elements_of(blocks[b]));
    fill_normal(derive(derive(key_of(1 + step), static_cast<std::uint64_t>(rank)), b), 0, 0.0,
                deviation, std::span<T>(values.back()));
  }
  return values;
}

template <class T>
std::vector<Blocks<T>> all_gradients(const std::vector<BlockLayout>& blocks, int ranks,
                                     std::uint64_t step) {
  std::vector<Blocks<T>> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(gradients<T>(blocks, rank, step));
  return all;
}

// One rank's end of it all.
struct Member {
  Member(Transport& transport, const GradientPolicy& policy, const std::vector<BlockLayout>& blocks,
         Dtype dtype = Dtype::f32)
      : engine(transport), progress_thread(engine) {
    Group group;
    for (Rank rank = 0; rank < transport.size(); ++rank) group.push_back(rank);
    sum = make_gradient_sum(progress_thread, group, policy, Traffic::dp_gradient, blocks, dtype);
  }

  // Posts in an order of its own, which depends on rank and step, and waits.
  template <class T>
  void exchange(std::uint64_t step, Blocks<T>& values) {
    std::vector<std::size_t> order(values.size());
    for (std::size_t b = 0; b < order.size(); ++b) order[b] = order.size() - 1 - b;
    std::mt19937_64 random(100 * step + static_cast<std::uint64_t>(engine.rank()));
    std::shuffle(order.begin(), order.end(), random);
    sum->begin(step);
    for (const std::size_t b : order) sum->post(b, reinterpret_cast<std::byte*>(values[b].data()));
    sum->wait();
    engine.flush();  // others may wait for what is still queued when this rank has gone
  }

  Engine engine;
  ProgressThread progress_thread;
  std::unique_ptr<GradientSum> sum;
};

// Equal bits, and where not.
template <class T>
void expect_same(const Blocks<T>& expected, const Blocks<T>& actual, const std::string& where) {
  ASSERT_EQ(expected.size(), actual.size()) << where;
  for (std::size_t b = 0; b < expected.size(); ++b)
    for (std::size_t i = 0; i < expected[b].size(); ++i) {
      using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
      ASSERT_EQ(std::bit_cast<Word>(expected[b][i]), std::bit_cast<Word>(actual[b][i]))
          << where << ", block " << b << ", element " << i << ": " << expected[b][i] << " and "
          << actual[b][i];
    }
}

inline void expect_same_state(const NamedFloats& expected, const NamedFloats& actual,
                              const std::string& where) {
  for (const auto& [name, values] : actual) EXPECT_TRUE(expected.contains(name)) << name << where;
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name << ", " << where;
    ASSERT_EQ(actual.at(name).size(), values.size()) << name << ", " << where;
    expect_same<float>({values}, {actual.at(name)}, name + ", " + where);
  }
}

inline constexpr int kMembers[] = {1, 2, 3, 4, 8};

}  // namespace laconic::test
