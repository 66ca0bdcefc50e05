#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "laconic/base/error.hpp"
#include "laconic/collective/test_collective.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {

namespace {

// --- what raw collectives should give, by their definitions

// The order in which a chunk's contributions are added, as nested pairs would be too much: a sum
// of doubling is made by the function itself.
template <class T>
std::vector<T> sum_in_order(const Buffers<T>& in, const std::vector<int>& order) {
  std::vector<T> sum = in[static_cast<std::size_t>(order[0])];
  for (std::size_t i = 1; i < order.size(); ++i)
    for (std::size_t e = 0; e < sum.size(); ++e)
      sum[e] += in[static_cast<std::size_t>(order[i])][e];
  return sum;
}

template <class T>
std::vector<T> sum_by_doubling(const Buffers<T>& in) {
  const std::size_t seats = std::bit_floor(in.size()), extra = in.size() - seats;
  Buffers<T> level;
  for (std::size_t m = 0; m < in.size(); ++m) {
    const bool is_pair = m < 2 * extra;
    level.push_back(is_pair ? sum_in_order<T>({in[m], in[m + 1]}, {0, 1}) : in[m]);
    m += is_pair ? 1 : 0;
  }
  while (level.size() > 1) {
    Buffers<T> next;
    for (std::size_t i = 0; i < level.size(); i += 2)
      next.push_back(sum_in_order<T>({level[i], level[i + 1]}, {0, 1}));
    level = next;
  }
  return level[0];
}

std::vector<int> order_of(Algorithm algorithm, int members, int chunk) {
  std::vector<int> order(static_cast<std::size_t>(members));
  std::iota(order.begin(), order.end(), 0);
  if (algorithm == Algorithm::ring)  // from the member behind the owner round to the owner
    std::rotate(order.begin(), order.begin() + (chunk + 1) % members, order.end());
  return order;
}

template <class T>
std::vector<T> expected_chunk(const CollectiveSpec& spec, const Buffers<T>& in, int chunk) {
  const int members = static_cast<int>(in.size());
  switch (spec.kind) {
    case CollectiveKind::all_gather: return in[static_cast<std::size_t>(chunk)];
    case CollectiveKind::broadcast: return in[0];
    case CollectiveKind::all_to_all: return in[static_cast<std::size_t>(chunk / members)];
    default: break;
  }
  if (spec.algorithm == Algorithm::doubling) return sum_by_doubling(in);
  return sum_in_order(in, order_of(spec.algorithm, members, chunk));
}

bool ends_with(const CollectiveSpec& spec, int member, int chunk) {
  const int members = static_cast<int>(spec.group.size());
  if (spec.kind == CollectiveKind::reduce_scatter) return chunk == member;
  if (spec.kind == CollectiveKind::all_to_all) return chunk % members == member;
  return true;
}

template <class T>
void expect_result(const CollectiveSpec& spec, const Buffers<T>& in, const std::vector<T>& out,
                   int member) {
  const int chunks = static_cast<int>(spec.offsets.size()) - 1;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (!ends_with(spec, member, chunk)) continue;
    const auto at = static_cast<std::size_t>(chunk);
    EXPECT_TRUE(
        same_elements(expected_chunk(spec, in, chunk), out, spec.offsets[at], spec.offsets[at + 1]))
        << name_of(spec.kind) << " by " << name_of(spec.algorithm) << ", " << in.size()
        << " members, " << spec.offsets.back() << " elements: chunk " << chunk << " at member "
        << member;
  }
}

template <class Act>
void for_each_spec(int members, std::uint64_t elements, Dtype dtype, const Act& act) {
  std::uint32_t unit = 0;
  for (const CollectiveKind kind : kAllKinds)
    for (const Algorithm algorithm : algorithms_of(kind)) {
      CollectiveSpec spec = spec_of(kind, algorithm, members, elements, dtype);
      spec.unit = unit++;
      act(spec);
    }
}

template <class T>
void expect_all_kinds(int members, const std::vector<std::uint64_t>& sizes,
                      std::uint64_t lane_elements) {
  run_members(members, [&](Engine& engine) {
    std::uint64_t step = 0;
    for (const std::uint64_t elements : sizes)
      for_each_spec(members, elements, dtype_of<T>(), [&](CollectiveSpec spec) {
        spec.lane_elements = lane_elements;
        spec.unit += 100 * static_cast<std::uint32_t>(step);
        const auto in = random_buffers<T>(members, elements, static_cast<unsigned>(elements));
        std::vector<T> buffer = in[static_cast<std::size_t>(engine.rank())];
        Collective collective(engine, spec);
        step_once(engine, collective, step, bytes_in(buffer));
        if (spec.kind != CollectiveKind::barrier) expect_result(spec, in, buffer, engine.rank());
        ++step;
      });
  });
}

constexpr int kMostMembers = 9;

TEST(Collective, GivesTheBitsThatItsOrderOfSummingGives) {
  const std::vector<std::uint64_t> sizes = {0, 1, 2, 3, 255, 256, 257, 1000};
  for (int members = 1; members <= kMostMembers; ++members) {
    expect_all_kinds<float>(members, sizes, 0);
    expect_all_kinds<double>(members, sizes, 0);
  }
}

TEST(Collective, GivesTheSameBitsInManyLanes) {
  for (const int members : {2, 3, 5}) {
    expect_all_kinds<float>(members, {100'000}, 10'000);
    expect_all_kinds<double>(members, {10'001}, 1024);
  }
}

}  // namespace

}  // namespace laconic
