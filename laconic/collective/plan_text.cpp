// How plans are counted and printed.

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "laconic/base/text.hpp"
#include "laconic/collective/plan.hpp"

namespace laconic {

namespace {

constexpr char kSigns[] = "era><!+o=";  // in the order of acts

bool is_giving(Act act) {
  return act == Act::encode || act == Act::encode_result || act == Act::encode_for_all ||
         act == Act::send;
}

// The chunks that go without saying: what a member owns, and what a peer has to do with it.
struct Obvious {
  const Plan& plan;
  int self;

  int own() const { return plan.chunks == plan.members ? self : 0; }
  int for_peer(int peer) const {
    if (plan.kind == CollectiveKind::all_to_all) return self * plan.members + peer;
    return plan.chunks == plan.members ? peer : 0;
  }
  int of_peer(int peer) const {
    return plan.kind == CollectiveKind::all_to_all ? peer * plan.members + self : for_peer(peer);
  }
  int at(const std::vector<Hop>& hops, std::size_t i) const {
    switch (hops[i].act) {
      case Act::encode: return for_peer(hops[i].peer);
      case Act::encode_result:
      case Act::encode_for_all:
      case Act::add_own: return own();
      case Act::receive: {
        const bool is_added = i + 1 < hops.size() && hops[i + 1].act == Act::add;
        return is_added ? own() : of_peer(hops[i].peer);
      }
      default: return i > 0 ? hops[i - 1].chunk : own();
    }
  }
};

std::string text_of(const Plan& plan, int self) {
  const auto& hops = plan.by_member[static_cast<std::size_t>(self)];
  const Obvious obvious{plan, self};
  std::string text = fmt::format("member {}:", self);
  for (std::size_t i = 0; i < hops.size(); ++i) {
    const Hop& hop = hops[i];
    text += i == 0 ? "  " : is_giving(hop.act) != is_giving(hops[i - 1].act) ? " | " : " ";
    text += kSigns[static_cast<int>(hop.act)];
    if (has_peer(hop.act)) text += std::to_string(hop.peer);
    if (hop.chunk != kNoChunk && hop.chunk != obvious.at(hops, i))
      text += fmt::format(":{}", hop.chunk);
  }
  return text + "\n";
}

}  // namespace

std::vector<int> chunks_sent(const Plan& plan, int member) {
  std::vector<int> chunks;
  for (const Hop& hop : plan.by_member[static_cast<std::size_t>(member)])
    if (hop.act == Act::send && hop.chunk != kNoChunk) chunks.push_back(hop.chunk);
  return chunks;
}

// Everybody walks as far as messages allow; a message is one round later than the latest that its
// sender had taken.
int rounds(const Plan& plan) {
  std::vector<std::size_t> at(plan.by_member.size(), 0);
  std::vector<int> latest(plan.by_member.size(), 0);
  std::map<std::pair<int, int>, std::deque<int>> under_way;
  for (bool moved = true; moved;) {
    moved = false;
    for (int self = 0; self < plan.members; ++self) {
      const auto m = static_cast<std::size_t>(self);
      for (; at[m] < plan.by_member[m].size(); ++at[m], moved = true) {
        const Hop& hop = plan.by_member[m][at[m]];
        if (hop.act == Act::send) under_way[{self, hop.peer}].push_back(latest[m] + 1);
        if (hop.act != Act::receive) continue;
        auto& queue = under_way[{hop.peer, self}];
        if (queue.empty()) break;
        latest[m] = std::max(latest[m], queue.front());
        queue.pop_front();
      }
    }
  }
  return *std::ranges::max_element(latest);
}

std::string to_text(const Plan& plan) {
  std::string text = fmt::format("{} by {}, {} members, {} chunks\n", name_of(plan.kind),
                                 name_of(plan.algorithm), plan.members, plan.chunks);
  for (int self = 0; self < plan.members; ++self) text += text_of(plan, self);
  return text;
}

}  // namespace laconic
