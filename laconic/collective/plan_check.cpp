// A plan is proved by walking it with symbols instead of numbers.
//
// A value is an expression: what a member brought of a chunk, a sum of two
// expressions in this order, what a lossy message made of one. Equal
// expressions are one node, so "the same bits on all members" is the equality of
// two integers, and what went into a value is its list of leaves.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "laconic/base/index.hpp"
#include "laconic/collective/plan.hpp"

namespace laconic {

namespace {

constexpr int kNothing = -1;  // undefined values, no message, no sum

class Expressions {
 public:
  int brought(int member, int chunk) { return node({0, member, chunk, 0}, {member}); }
  int sum(int a, int b) {
    std::vector<int> leaves = leaves_[index(a)];
    leaves.insert(leaves.end(), leaves_[index(b)].begin(), leaves_[index(b)].end());
    return node({1, a, b, 0}, std::move(leaves));
  }
  int encoded(int value, int member, int peer) {
    return node({2, value, member, peer}, leaves_[index(value)]);
  }
  int result(int value, int member) { return node({3, value, member, 0}, leaves_[index(value)]); }

  // Lists whose contributions are in it, in the order in which they were added.
  const std::vector<int>& leaves(int value) const { return leaves_[index(value)]; }

 private:
  int node(const std::array<int, 4>& what, std::vector<int> leaves) {
    const auto [at, is_new] = nodes_.try_emplace(what, static_cast<int>(leaves_.size()));
    if (is_new) leaves_.push_back(std::move(leaves));
    return at->second;
  }

  std::map<std::array<int, 4>, int> nodes_;
  std::vector<std::vector<int>> leaves_;
};

struct Held {  // a message or a sum at hand
  int value = kNothing;
  int chunk = kNoChunk;
  bool is_used = true;  // a message: sent, added or stored
};

struct Member {
  std::vector<int> values;  // by chunk
  std::set<int> met;        // barrier: members that it knows to have come
  Held message;
  Held sum;
  std::size_t at = 0;
};

struct Carried {
  int value = kNothing;
  int chunk = kNoChunk;
  std::set<int> met;
};

bool brings(const Plan& plan, int member, int chunk) {
  switch (plan.kind) {
    case CollectiveKind::all_gather: return chunk == member;
    case CollectiveKind::broadcast: return member == 0;
    case CollectiveKind::all_to_all: return chunk / plan.members == member;
    default: return true;
  }
}

class Walk {
 public:
  explicit Walk(const Plan& plan) : plan_(plan), members_(index(plan.members)) {
    for (int m = 0; m < plan.members; ++m) {
      Member& member = members_[index(m)];
      member.met = {m};
      for (int chunk = 0; chunk < plan.chunks; ++chunk)
        member.values.push_back(brings(plan, m, chunk) ? expressions_.brought(m, chunk) : kNothing);
    }
  }

  Problems run() {
    while (advance_all()) {
    }
    for (int m = 0; m < plan_.members; ++m) check_end(m);
    for (const auto& [between, queue] : under_way_)
      if (!queue.empty())
        problem(between.second, fmt::format("{} messages from member {} are never taken",
                                            queue.size(), between.first));
    if (problems_.empty()) check_results();
    return std::move(problems_);
  }

 private:
  // --- walking

  bool advance_all() {
    bool moved = false;
    for (int m = 0; m < plan_.members; ++m)
      while (members_[index(m)].at < hops(m).size() && act(m)) {
        ++members_[index(m)].at;
        moved = true;
      }
    return moved;
  }

  // False: waits.
  bool act(int m) {
    Member& self = members_[index(m)];
    const Hop& hop = hops(m)[self.at];
    if (plan_.kind == CollectiveKind::barrier)
      return hop.act == Act::send ? send(m, hop) : receive(m, hop);
    int& values = self.values[index(hop.chunk)];
    switch (hop.act) {
      case Act::encode: make(m, hop, is_exact() ? values : encoded(values, m, hop.peer)); break;
      case Act::encode_result:
        make(m, hop, values = is_exact() ? values : result(values, m));
        break;
      case Act::encode_for_all: make(m, hop, values = encoded(values, m, m)); break;
      case Act::send: return send(m, hop);
      case Act::receive: return receive(m, hop);
      case Act::store: values = take_message(m, hop); break;
      case Act::add: add(m, hop, take_message(m, hop)); break;
      case Act::add_own: add(m, hop, values); break;
      case Act::finish_sum: values = take_sum(m, hop); break;
    }
    return true;
  }

  // In doubling everybody computes the sum, so only what is not rounded can travel.
  bool is_exact() const { return plan_.algorithm == Algorithm::doubling; }
  int encoded(int value, int member, int peer) {
    return value == kNothing ? kNothing : expressions_.encoded(value, member, peer);
  }
  int result(int value, int member) {
    return value == kNothing ? kNothing : expressions_.result(value, member);
  }

  void make(int m, const Hop& hop, int value) {
    if (value == kNothing) problem(m, fmt::format("chunk {} has no values yet", hop.chunk));
    hold(m, {value, hop.chunk, false});
  }

  void hold(int m, const Held& message) {
    Held& held = members_[index(m)].message;
    if (!held.is_used)
      problem(m, fmt::format("the message of chunk {} is dropped unused", held.chunk));
    held = message;
  }

  bool send(int m, const Hop& hop) {
    Member& self = members_[index(m)];
    if (hop.chunk != kNoChunk &&
        (self.message.value == kNothing || self.message.chunk != hop.chunk))
      problem(m, fmt::format("there is no message of chunk {} to send", hop.chunk));
    self.message.is_used = true;
    under_way_[{m, hop.peer}].push_back({self.message.value, hop.chunk, self.met});
    return true;
  }

  bool receive(int m, const Hop& hop) {
    auto& queue = under_way_[{hop.peer, m}];
    if (queue.empty()) return false;
    const Carried carried = std::move(queue.front());
    queue.pop_front();
    if (carried.chunk != hop.chunk)
      problem(m, fmt::format("member {} sends chunk {} where chunk {} is expected", hop.peer,
                             carried.chunk, hop.chunk));
    if (hop.chunk != kNoChunk) hold(m, {carried.value, hop.chunk, false});
    members_[index(m)].met.insert(carried.met.begin(), carried.met.end());
    return true;
  }

  int take_message(int m, const Hop& hop) {
    Held& held = members_[index(m)].message;
    if (held.value == kNothing || held.chunk != hop.chunk) {
      problem(m, fmt::format("there is no message of chunk {} at hand", hop.chunk));
      return kNothing;
    }
    return std::exchange(held, Held{}).value;
  }

  void add(int m, const Hop& hop, int value) {
    Held& sum = members_[index(m)].sum;
    if (value == kNothing) return problem(m, fmt::format("nothing of chunk {} to add", hop.chunk));
    if (sum.value != kNothing && sum.chunk != hop.chunk)
      return problem(m, fmt::format("adds chunk {} to a sum of chunk {}", hop.chunk, sum.chunk));
    sum = {sum.value == kNothing ? value : expressions_.sum(sum.value, value), hop.chunk};
  }

  int take_sum(int m, const Hop& hop) {
    Held& sum = members_[index(m)].sum;
    if (sum.value == kNothing || sum.chunk != hop.chunk) {
      problem(m, fmt::format("there is no sum of chunk {} to finish", hop.chunk));
      return kNothing;
    }
    return std::exchange(sum, Held{}).value;
  }

  // --- what must hold at the end

  void check_end(int m) {
    const Member& self = members_[index(m)];
    if (self.at < hops(m).size())
      problem(m, fmt::format("waits for ever for a message of member {}", hops(m)[self.at].peer));
    if (!self.message.is_used)
      problem(m, fmt::format("the message of chunk {} is dropped unused", self.message.chunk));
    if (self.sum.value != kNothing)
      problem(m, fmt::format("the sum of chunk {} is never finished", self.sum.chunk));
  }

  void check_results() {
    if (plan_.kind == CollectiveKind::barrier) return check_met();
    for (int chunk = 0; chunk < plan_.chunks; ++chunk) {
      int first = kNothing;
      for (int m = 0; m < plan_.members; ++m)
        if (ends_with(m, chunk)) {
          const int value = members_[index(m)].values[index(chunk)];
          check_leaves(m, chunk, value);
          if (first == kNothing) first = value;
          if (value != first)
            problem(m, fmt::format("ends with another result for chunk {} than others", chunk));
        }
    }
  }

  bool ends_with(int m, int chunk) const {
    if (plan_.kind == CollectiveKind::reduce_scatter) return m == chunk;
    if (plan_.kind == CollectiveKind::all_to_all) return chunk % plan_.members == m;
    return true;
  }

  void check_leaves(int m, int chunk, int value) {
    if (value == kNothing)
      return problem(m, fmt::format("ends without values for chunk {}", chunk));
    std::vector<int> got = expressions_.leaves(value), wanted;
    for (int member = 0; member < plan_.members; ++member)
      if (brings(plan_, member, chunk)) wanted.push_back(member);
    const bool is_ordered =
        plan_.algorithm == Algorithm::direct || plan_.algorithm == Algorithm::gathered;
    if (!is_ordered) std::ranges::sort(got);
    if (got != wanted)
      problem(m, fmt::format("chunk {} is made of members {}, expected {}", chunk,
                             fmt::join(got, " "), fmt::join(wanted, " ")));
  }

  void check_met() {
    for (int m = 0; m < plan_.members; ++m)
      if (static_cast<int>(members_[index(m)].met.size()) < plan_.members)
        problem(m, fmt::format("leaves when it knows of {} members of {}",
                               members_[index(m)].met.size(), plan_.members));
  }

  const std::vector<Hop>& hops(int m) const { return plan_.by_member[index(m)]; }
  void problem(int m, std::string what) {
    problems_.push_back(
        {fmt::format("member {}, hop {}", m, members_[index(m)].at), std::move(what)});
  }

  const Plan& plan_;
  Expressions expressions_;
  std::vector<Member> members_;
  std::map<std::pair<int, int>, std::deque<Carried>> under_way_;
  Problems problems_;
};

// --- what must hold before anybody can walk

Problems check_hop(const Plan& plan, int member, std::size_t at) {
  const Hop& hop = plan.by_member[index(member)][at];
  Problems problems;
  const auto problem = [&](std::string what) {
    problems.push_back({fmt::format("member {}, hop {}", member, at), std::move(what)});
  };
  if (has_peer(hop.act) && (hop.peer < 0 || hop.peer >= plan.members || hop.peer == member))
    problem(fmt::format("{} is no peer among {} members", hop.peer, plan.members));
  const bool is_barrier = plan.kind == CollectiveKind::barrier;
  if (is_barrier ? hop.chunk != kNoChunk : hop.chunk < 0 || hop.chunk >= plan.chunks)
    problem(fmt::format("chunk {} of {}", hop.chunk, plan.chunks));
  if (is_barrier && hop.act != Act::send && hop.act != Act::receive)
    problem("a barrier only sends and receives");
  return problems;
}

Problems check_shape(const Plan& plan) {
  const auto known = algorithms_of(plan.kind);
  if (std::ranges::find(known, plan.algorithm) == known.end())
    return {{"plan",
             fmt::format("{} has no algorithm {}", name_of(plan.kind), name_of(plan.algorithm))}};
  if (plan.members < 1 || plan.by_member.size() != index(plan.members))
    return {{"plan", fmt::format("{} lists for {} members", plan.by_member.size(), plan.members)}};
  const int chunks = chunks_of(plan.kind, plan.algorithm, plan.members);
  if (plan.chunks != chunks)
    return {{"plan", fmt::format("{} chunks, expected {}", plan.chunks, chunks)}};
  Problems problems;
  for (int m = 0; m < plan.members; ++m)
    for (std::size_t i = 0; i < plan.by_member[index(m)].size(); ++i)
      for (Problem& problem : check_hop(plan, m, i)) problems.push_back(std::move(problem));
  return problems;
}

}  // namespace

Problems check(const Plan& plan) {
  Problems problems = check_shape(plan);
  return problems.empty() ? Walk(plan).run() : problems;
}

}  // namespace laconic
