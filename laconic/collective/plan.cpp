#include "laconic/collective/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

using Hops = std::vector<Hop>;

constexpr std::array<std::string_view, 6> kKinds = {"all_reduce", "reduce_scatter", "all_gather",
                                                    "broadcast",  "all_to_all",     "barrier"};
constexpr std::array<std::string_view, 5> kAlgorithms = {"direct", "ring", "doubling", "tree",
                                                         "gathered"};

// Below this a message costs its way, not its bytes.
constexpr std::uint64_t kSmallBytes = 4096;

// Members in the order in which `self` addresses them: the next first, so that not everybody
// begins with member 0.
std::vector<int> others(int self, int members) {
  std::vector<int> result;
  for (int i = 1; i < members; ++i) result.push_back((self + i) % members);
  return result;
}

// --- parts of lists

void add_encode(Hops& hops, int chunk, int peer) {
  hops.push_back({Act::encode, chunk, peer});
  hops.push_back({Act::send, chunk, peer});
}

void add_store(Hops& hops, int chunk, int peer) {
  hops.push_back({Act::receive, chunk, peer});
  hops.push_back({Act::store, chunk, 0});
}

void add_addend(Hops& hops, int chunk, int peer) {
  hops.push_back({Act::receive, chunk, peer});
  hops.push_back({Act::add, chunk, 0});
}

// Every contribution to its owner; the owner adds in member order, its own at its place.
void scatter_direct(Hops& hops, int self, int members) {
  for (const int peer : others(self, members)) add_encode(hops, peer, peer);
  for (int member = 0; member < members; ++member)
    if (member == self)
      hops.push_back({Act::add_own, self, 0});
    else
      add_addend(hops, self, member);
  hops.push_back({Act::finish_sum, self, 0});
}

void gather_direct(Hops& hops, int self, int members) {
  hops.push_back({Act::encode_result, self, 0});
  for (const int peer : others(self, members)) hops.push_back({Act::send, self, peer});
  for (const int peer : others(self, members)) add_store(hops, peer, peer);
}

// Chunk c starts at member c + 1 and collects contributions on its way round to c.
void scatter_ring(Hops& hops, int self, int members) {
  const int next = (self + 1) % members, previous = (self + members - 1) % members;
  for (int round = 0; round + 1 < members; ++round) {
    add_encode(hops, (self + 2 * members - 1 - round) % members, next);
    const int chunk = (self + 2 * members - 2 - round) % members;
    add_addend(hops, chunk, previous);
    hops.push_back({Act::add_own, chunk, 0});
    hops.push_back({Act::finish_sum, chunk, 0});
  }
}

// Every chunk goes once round as its owner encoded it. It is passed on before it is decoded.
void gather_ring(Hops& hops, int self, int members) {
  const int next = (self + 1) % members, previous = (self + members - 1) % members;
  hops.push_back({Act::encode_result, self, 0});
  hops.push_back({Act::send, self, next});
  for (int round = 1; round < members; ++round) {
    const int chunk = (self + members - round) % members;
    hops.push_back({Act::receive, chunk, previous});
    if (round + 1 < members) hops.push_back({Act::send, chunk, next});
    hops.push_back({Act::store, chunk, 0});
  }
}

// Nobody owns a chunk: each adds what all have encoded, in member order, its own as the others see
// it.
void reduce_gathered(Hops& hops, int self, int members) {
  hops.push_back({Act::encode_for_all, 0, 0});
  for (const int peer : others(self, members)) hops.push_back({Act::send, 0, peer});
  for (int member = 0; member < members; ++member)
    if (member == self)
      hops.push_back({Act::add_own, 0, 0});
    else
      add_addend(hops, 0, member);
  hops.push_back({Act::finish_sum, 0, 0});
}

// --- doubling. Partners exchange what they have and both add, the lower member's first: after k
// rounds 2^k neighbours hold the same sum, added in member order by pairs of pairs. Members beyond
// the largest power of two give theirs to a neighbour first, and get the sum back at the end: of
// the first 2 * extra members the even ones (`seats` 0 ... extra - 1) stand for two.
struct Doubling {
  int seats;
  int extra;
  explicit Doubling(int members)
      : seats(static_cast<int>(std::bit_floor(static_cast<unsigned>(members)))),
        extra(members - seats) {}
  bool is_seated(int member) const { return member >= 2 * extra || member % 2 == 0; }
  int seat_of(int member) const { return member < 2 * extra ? member / 2 : member - extra; }
  int member_at(int seat) const { return seat < extra ? 2 * seat : seat + extra; }
};

void add_pair(Hops& hops, int self, int peer) {
  if (self < peer) hops.push_back({Act::add_own, 0, 0});
  add_addend(hops, 0, peer);
  if (peer < self) hops.push_back({Act::add_own, 0, 0});
  hops.push_back({Act::finish_sum, 0, 0});
}

void reduce_doubling(Hops& hops, int self, int members) {
  const Doubling table(members);
  if (!table.is_seated(self)) {
    add_encode(hops, 0, self - 1);
    return add_store(hops, 0, self - 1);
  }
  const bool stands_for_two = self < 2 * table.extra;
  if (stands_for_two) add_pair(hops, self, self + 1);
  for (int distance = 1; distance < table.seats; distance *= 2) {
    const int partner = table.member_at(table.seat_of(self) ^ distance);
    add_encode(hops, 0, partner);
    add_pair(hops, self, partner);
  }
  if (stands_for_two) add_encode(hops, 0, self + 1);
}

// --- broadcast

void broadcast_direct(Hops& hops, int self, int members) {
  if (self > 0) return add_store(hops, 0, 0);
  hops.push_back({Act::encode_result, 0, 0});
  for (const int peer : others(0, members)) hops.push_back({Act::send, 0, peer});
}

// In round k those below 2^k, who all have it, send 2^k further.
void broadcast_tree(Hops& hops, int self, int members) {
  const int above = static_cast<int>(std::bit_floor(static_cast<unsigned>(self)));  // 0 for 0
  if (self == 0)
    hops.push_back({Act::encode_result, 0, 0});
  else
    hops.push_back({Act::receive, 0, self - above});
  for (int distance = std::max(1, 2 * above); self + distance < members; distance *= 2)
    hops.push_back({Act::send, 0, self + distance});
  if (self > 0) hops.push_back({Act::store, 0, 0});
}

void exchange_direct(Hops& hops, int self, int members) {
  for (const int peer : others(self, members)) add_encode(hops, self * members + peer, peer);
  for (const int peer : others(self, members)) add_store(hops, peer * members + self, peer);
}

// Dissemination: in round k everybody hears of 2^k more members behind it.
void pass_barrier(Hops& hops, int self, int members) {
  for (int distance = 1; distance < members; distance *= 2) {
    hops.push_back({Act::send, kNoChunk, (self + distance) % members});
    hops.push_back({Act::receive, kNoChunk, (self + members - distance) % members});
  }
}

void add_hops(Hops& hops, const Plan& plan, int self) {
  const bool is_ring = plan.algorithm == Algorithm::ring;
  const int n = plan.members;
  switch (plan.kind) {
    case CollectiveKind::all_reduce:
      if (plan.algorithm == Algorithm::doubling) return reduce_doubling(hops, self, n);
      if (plan.algorithm == Algorithm::gathered) return reduce_gathered(hops, self, n);
      (is_ring ? scatter_ring : scatter_direct)(hops, self, n);
      return (is_ring ? gather_ring : gather_direct)(hops, self, n);
    case CollectiveKind::reduce_scatter:
      return (is_ring ? scatter_ring : scatter_direct)(hops, self, n);
    case CollectiveKind::all_gather: return (is_ring ? gather_ring : gather_direct)(hops, self, n);
    case CollectiveKind::broadcast:
      return (plan.algorithm == Algorithm::tree ? broadcast_tree : broadcast_direct)(hops, self, n);
    case CollectiveKind::all_to_all: return exchange_direct(hops, self, n);
    case CollectiveKind::barrier: return pass_barrier(hops, self, n);
  }
}

}  // namespace

std::string_view name_of(CollectiveKind kind) {
  return kKinds.at(static_cast<std::size_t>(kind));
}

std::string_view name_of(Algorithm algorithm) {
  return kAlgorithms.at(static_cast<std::size_t>(algorithm));
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
  const auto at = std::ranges::find(kAlgorithms, name);
  if (at == kAlgorithms.end()) return std::nullopt;
  return static_cast<Algorithm>(at - kAlgorithms.begin());
}

std::vector<Algorithm> algorithms_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return {Algorithm::direct, Algorithm::ring, Algorithm::doubling, Algorithm::gathered};
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather: return {Algorithm::direct, Algorithm::ring};
    case CollectiveKind::broadcast: return {Algorithm::tree, Algorithm::direct};
    case CollectiveKind::all_to_all: return {Algorithm::direct};
    case CollectiveKind::barrier: return {Algorithm::doubling};
  }
  return {};
}

int chunks_of(CollectiveKind kind, Algorithm algorithm, int members) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return algorithm == Algorithm::doubling || algorithm == Algorithm::gathered ? 1 : members;
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather: return members;
    case CollectiveKind::broadcast: return 1;
    case CollectiveKind::all_to_all: return members * members;
    case CollectiveKind::barrier: return 0;
  }
  return 0;
}

Algorithm choose(CollectiveKind kind, std::uint64_t bytes, int, bool lossy) {
  if (kind == CollectiveKind::all_reduce && bytes <= kSmallBytes && !lossy)
    return Algorithm::doubling;
  return algorithms_of(kind).front();
}

Plan make_plan(CollectiveKind kind, Algorithm algorithm, int members) {
  const auto known = algorithms_of(kind);
  LACONIC_ASSERT(members >= 1 && std::ranges::find(known, algorithm) != known.end(),
                 fmt::format("{} by {}, {} members", name_of(kind), name_of(algorithm), members));
  Plan plan{kind, algorithm, members, chunks_of(kind, algorithm, members), {}};
  plan.by_member.resize(static_cast<std::size_t>(members));
  if (members == 1) return plan;
  for (int self = 0; self < members; ++self)
    add_hops(plan.by_member[static_cast<std::size_t>(self)], plan, self);
  return plan;
}

std::vector<std::uint64_t> cut(std::uint64_t elements, int chunks, std::uint64_t grain) {
  LACONIC_ASSERT(chunks >= 1 && grain >= 1, fmt::format("{} chunks, grain {}", chunks, grain));
  const std::uint64_t grains = elements / grain + (elements % grain > 0 ? 1 : 0);
  const auto count = static_cast<std::uint64_t>(chunks);
  std::vector<std::uint64_t> offsets;
  for (std::uint64_t i = 0; i <= count; ++i)  // i / count of the grains, without overflow
    offsets.push_back(
        std::min(elements, (grains / count * i + grains % count * i / count) * grain));
  return offsets;
}

}  // namespace laconic
