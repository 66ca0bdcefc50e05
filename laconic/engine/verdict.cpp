// What the records of all ranks say about a hang.
//
// The k-th send of (from, to, tag) belongs to the k-th recv of it. Who has done
// its part of a message that is not through waits for the other end, which
//
//   left no record                                  it is missing
//   has done its part too, or cannot                the message is astray: the network's doing
//   has not, and waits for somebody itself          look at what it waits for
//   has not, and waits for nobody                   it is late: the program's doing
//
// So causes are found by looking at every wait once; those of the third kind
// are only links of a chain. When there is no other kind, the chain bites its
// own tail: a cycle. When there are several causes, the one that holds up most ranks counts.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "laconic/base/text.hpp"
#include "laconic/engine/recorder.hpp"

namespace laconic {

namespace {

constexpr std::size_t kShownOperations = 3;

using Channel = std::tuple<Rank, Rank, Tag>;  // from, to

// One message, as far as either end knows of it.
struct Message {
  Channel channel;
  std::size_t turn = 0;  // which with this channel
  const Record* send = nullptr;
  const Record* recv = nullptr;
};

Rank sender_of(const Message& m) {
  return std::get<0>(m.channel);
}
Rank receiver_of(const Message& m) {
  return std::get<1>(m.channel);
}

bool is_done(const Record* record) {
  return record != nullptr && record->state == Record::State::done;
}
// Whether the receiver, or the sender, waits. One that failed ended its wait, but did wait. Once
// the receiver has asked, it is the one who waits.
bool is_awaited(const Message& m) {
  return m.recv != nullptr && !is_done(m.recv);
}
bool is_held_back(const Message& m) {
  return m.recv == nullptr && m.send != nullptr && !is_done(m.send);
}
Rank waiter_of(const Message& m) {
  return is_awaited(m) ? receiver_of(m) : sender_of(m);
}
Rank awaited_of(const Message& m) {
  return is_awaited(m) ? sender_of(m) : receiver_of(m);
}
// Both ends have done their part.
bool is_astray(const Message& m) {
  return is_awaited(m) && m.send != nullptr;
}
bool is_failed_send(const Message& m) {
  return m.send != nullptr && m.send->state == Record::State::failed;
}

std::string seconds_text(std::int64_t ns) {
  return human_seconds(static_cast<double>(std::max<std::int64_t>(ns, 0)) / 1e9);
}

std::string ranks_text(const std::set<Rank>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string name_of(const Message& m) {
  const std::string name = to_text(std::get<2>(m.channel));
  return m.turn == 0 ? name : fmt::format("{} (number {} of that tag)", name, m.turn + 1);
}

// Why some ranks wait.
struct Cause {
  enum class Kind : std::uint8_t { late, astray };  // in order of preference
  Kind kind = Kind::late;
  Rank at = 0;  // whom the others wait for
  Message message;
  std::size_t held_up = 0;  // ranks that wait for `at`, directly or not
  std::int64_t age_ns = 0;
};

class HangAnalysis {
 public:
  HangAnalysis(const std::vector<Flight>& flights, int size) : size_(size) {
    for (const Flight& flight : flights) flights_.insert_or_assign(flight.rank, &flight);
    match();
  }

  std::string first_line() const;
  std::string evidence() const;

 private:
  void match();
  std::set<Rank> participants() const;
  std::set<Rank> missing() const;
  std::set<Rank> waiting_directly(const std::set<Rank>& peers) const;
  std::set<Rank> held_up_by(Rank rank) const;
  std::optional<Cause> cause_of(const Message& wait) const;
  std::vector<Cause> causes() const;  // the most likely first
  std::optional<Message> first_undone_by(Rank rank) const;
  std::vector<Message> cycle() const;
  std::int64_t age_of(const Message& m) const;
  std::int64_t taken_ns(const Flight& flight) const;
  std::int64_t memory_of(Rank rank) const;

  std::string text_of(const Cause& cause) const;
  std::string text_of_missing(const std::set<Rank>& ranks) const;
  std::string text_of_cycle(const std::vector<Message>& messages) const;
  std::string lines_of(const Flight& flight) const;
  std::string line_of(const Flight& flight, const Record& record) const;

  const int size_;
  std::map<Rank, const Flight*> flights_;
  std::vector<Message> messages_;
  std::map<Rank, std::vector<const Message*>> waits_;  // by who waits
};

void HangAnalysis::match() {
  std::map<Channel, std::pair<std::vector<const Record*>, std::vector<const Record*>>> ends;
  for (const auto& [rank, flight] : flights_)
    for (const Record& r : flight->records)
      if (r.kind == Record::Kind::send)
        ends[{rank, r.peer, r.tag}].first.push_back(&r);
      else
        ends[{r.peer, rank, r.tag}].second.push_back(&r);
  for (const auto& [channel, both] : ends) {
    const auto& [sends, recvs] = both;
    for (std::size_t k = 0; k < std::max(sends.size(), recvs.size()); ++k)
      messages_.push_back({channel, k, k < sends.size() ? sends[k] : nullptr,
                           k < recvs.size() ? recvs[k] : nullptr});
  }
  for (const Message& m : messages_)
    if (is_awaited(m) || is_held_back(m)) waits_[waiter_of(m)].push_back(&m);
}

std::set<Rank> HangAnalysis::participants() const {
  std::set<Rank> ranks;
  for (Rank r = 0; r < size_; ++r) ranks.insert(r);
  for (const Message& m : messages_) ranks.insert({sender_of(m), receiver_of(m)});
  return ranks;
}

std::set<Rank> HangAnalysis::missing() const {
  std::set<Rank> ranks;
  for (const Rank r : participants())
    if (!flights_.contains(r)) ranks.insert(r);
  return ranks;
}

std::set<Rank> HangAnalysis::waiting_directly(const std::set<Rank>& peers) const {
  std::set<Rank> ranks;
  for (const auto& [waiter, messages] : waits_)
    for (const Message* m : messages)
      if (!is_astray(*m) && peers.contains(awaited_of(*m))) ranks.insert(waiter);
  return ranks;
}

std::set<Rank> HangAnalysis::held_up_by(Rank rank) const {
  std::set<Rank> held_up;
  for (std::set<Rank> next = waiting_directly({rank}); next.size() > held_up.size();) {
    held_up = next;
    next.merge(waiting_directly(held_up));
  }
  return held_up;
}

std::optional<Cause> HangAnalysis::cause_of(const Message& m) const {
  const Rank peer = awaited_of(m);
  const auto flight = flights_.find(peer);
  if (flight == flights_.end()) return std::nullopt;
  const Cause astray{Cause::Kind::astray, peer, m, held_up_by(waiter_of(m)).size() + 1, age_of(m)};
  const bool is_chain = waits_.contains(peer);
  if (is_astray(m) || (is_failed_send(m) && !is_chain && flight->second->error.empty()))
    return astray;
  if (is_chain) return std::nullopt;
  const std::optional<Message> undone = first_undone_by(peer);
  if (!undone) return astray;  // a send that the peer may have taken so long ago that it forgot
  return Cause{Cause::Kind::late, peer, *undone, held_up_by(peer).size(), age_of(m)};
}

std::vector<Cause> HangAnalysis::causes() const {
  std::vector<Cause> all;
  for (const auto& [waiter, messages] : waits_)
    for (const Message* m : messages)
      if (const auto cause = cause_of(*m)) all.push_back(*cause);
  std::stable_sort(all.begin(), all.end(), [](const Cause& a, const Cause& b) {
    return std::tuple(b.held_up, a.kind, b.age_ns, a.at) <
           std::tuple(a.held_up, b.kind, a.age_ns, b.at);
  });
  return all;
}

// The oldest message of which the other end has done its part and `rank` has not. It may be a recv:
// what a rank was sent before it was asked for something is what it should have taken first.
std::optional<Message> HangAnalysis::first_undone_by(Rank rank) const {
  std::optional<Message> oldest;
  for (const Message& m : messages_) {
    const bool is_unsent = sender_of(m) == rank && m.send == nullptr && is_awaited(m);
    const bool is_unposted =
        receiver_of(m) == rank && m.recv == nullptr && age_of(m) <= memory_of(rank);
    if (!is_unsent && !is_unposted) continue;
    const auto order = [&](const Message& x) { return std::pair(age_of(x), x.recv != nullptr); };
    if (!oldest || order(m) > order(*oldest)) oldest = m;
  }
  return oldest;
}

// Requires: somebody waits, and whoever is waited for waits.
std::vector<Message> HangAnalysis::cycle() const {
  std::vector<Message> chain;
  for (Rank at = waits_.begin()->first;; at = awaited_of(chain.back())) {
    const auto seen = std::find_if(chain.begin(), chain.end(),
                                   [&](const Message& m) { return waiter_of(m) == at; });
    if (seen != chain.end()) return {seen, chain.end()};
    const auto& waits = waits_.at(at);
    chain.push_back(**std::max_element(waits.begin(), waits.end(),
                                       [&](auto* a, auto* b) { return age_of(*a) < age_of(*b); }));
  }
}

std::int64_t HangAnalysis::taken_ns(const Flight& flight) const {
  std::int64_t taken = flight.taken_ns;
  for (const Record& r : flight.records) taken = std::max({taken, r.posted_ns, r.finished_ns});
  return taken;
}

// How far back the rank remembers: what finished earlier may have left its ring. Ids have no gaps
// as long as nothing did.
std::int64_t HangAnalysis::memory_of(Rank rank) const {
  constexpr std::int64_t kForEver = std::numeric_limits<std::int64_t>::max();
  const Flight& flight = *flights_.at(rank);
  std::uint64_t posted = 0;
  std::int64_t oldest = kForEver;
  for (const Record& r : flight.records) {
    posted = std::max(posted, r.id + 1);
    if (r.state != Record::State::posted) oldest = std::min(oldest, r.finished_ns);
  }
  return posted == flight.records.size() ? kForEver : taken_ns(flight) - oldest;
}

// How long ago its first known end was posted, on that end's clock.
std::int64_t HangAnalysis::age_of(const Message& m) const {
  const bool by_recv = m.recv != nullptr;
  const Flight& flight = *flights_.at(by_recv ? receiver_of(m) : sender_of(m));
  return taken_ns(flight) - (by_recv ? m.recv : m.send)->posted_ns;
}

std::string HangAnalysis::text_of_missing(const std::set<Rank>& ranks) const {
  const bool one = ranks.size() == 1;
  const std::set<Rank> waiting = waiting_directly(ranks);
  std::string text = fmt::format("{} left no record: {} died or cannot be reached",
                                 ranks_text(ranks), one ? "it" : "they");
  if (!waiting.empty())
    text += fmt::format("; {} {} for {}", ranks_text(waiting),
                        waiting.size() == 1 ? "waits" : "wait", one ? "it" : "them");
  return text;
}

std::string HangAnalysis::text_of_cycle(const std::vector<Message>& messages) const {
  std::set<Rank> ranks;
  std::vector<std::string> parts;
  for (const Message& m : messages) {
    ranks.insert(waiter_of(m));
    parts.push_back(is_awaited(m) ? fmt::format("rank {} for {} from rank {}", waiter_of(m),
                                                name_of(m), awaited_of(m))
                                  : fmt::format("rank {} for rank {} to take {}", waiter_of(m),
                                                awaited_of(m), name_of(m)));
  }
  if (ranks.size() == 1)
    return fmt::format("rank {} waits for itself: {}", *ranks.begin(), parts.front());
  return fmt::format("{} wait for each other: {}", ranks_text(ranks), join(parts, ", "));
}

std::string HangAnalysis::text_of(const Cause& cause) const {
  const Message& m = cause.message;
  const Rank from = sender_of(m);
  const Rank to = receiver_of(m);
  if (cause.kind == Cause::Kind::late) {
    const std::string& error = flights_.at(cause.at)->error;
    const std::string why = error.empty() ? "" : fmt::format("; it had failed: {}", error);
    if (m.send == nullptr)
      return fmt::format("rank {} never sent {} to rank {}{}", from, name_of(m), to, why);
    return fmt::format("rank {} never posted recv of {} from rank {}{}", to, name_of(m), from, why);
  }
  const std::string message = fmt::format("message {} of {} from rank {}", name_of(m),
                                          human_bytes(static_cast<double>(m.send->bytes)), from);
  switch (m.send->state) {
    case Record::State::done: return fmt::format("{} left but did not reach rank {}", message, to);
    case Record::State::failed: return fmt::format("{} could not be sent to rank {}", message, to);
    default: return fmt::format("{} to rank {} was queued but has not left", message, to);
  }
}

std::string HangAnalysis::first_line() const {
  const std::set<Rank> gone = missing();
  if (flights_.empty()) return "no rank left a record";
  // Whatever the others wait for: this is why it does not come.
  for (const auto& [rank, flight] : flights_)
    if (flight->is_cause) return fmt::format("rank {} failed by itself: {}", rank, flight->error);
  if (!gone.empty() && !waiting_directly(gone).empty()) return text_of_missing(gone);
  const std::vector<Cause> all = causes();
  if (!all.empty()) return text_of(all.front());
  if (!gone.empty()) return text_of_missing(gone);
  if (!waits_.empty()) return text_of_cycle(cycle());
  // Nobody waits. Who failed, or left a message lying?
  for (const auto& [rank, flight] : flights_)
    if (!flight->error.empty()) return fmt::format("rank {} failed: {}", rank, flight->error);
  std::optional<Cause> oldest;
  for (const auto& [rank, flight] : flights_)
    if (const auto m = first_undone_by(rank); m && (!oldest || age_of(*m) > oldest->age_ns))
      oldest = Cause{Cause::Kind::late, rank, *m, 0, age_of(*m)};
  return oldest ? text_of(*oldest) : "no rank waits for another";
}

std::string HangAnalysis::line_of(const Flight& flight, const Record& r) const {
  const bool is_send = r.kind == Record::Kind::send;
  const std::string size =
      r.bytes == 0 ? "" : fmt::format(" ({})", human_bytes(static_cast<double>(r.bytes)));
  const bool is_open = r.state == Record::State::posted;
  const std::int64_t since = is_open ? r.posted_ns : r.finished_ns;
  const std::string age = seconds_text(taken_ns(flight) - since);
  return fmt::format("{} of {}{} {} rank {}, {}", is_send ? "send" : "recv", to_text(r.tag), size,
                     is_send ? "to" : "from", r.peer,
                     is_open       ? fmt::format("open for {}", age)
                     : is_done(&r) ? fmt::format("done {} ago", age)
                                   : fmt::format("failed {} ago", age));
}

std::string HangAnalysis::lines_of(const Flight& flight) const {
  std::string text =
      fmt::format("rank {}{}: {}\n", flight.rank, flight.host.empty() ? "" : " on " + flight.host,
                  flight.doing.empty() ? "(says nothing)" : flight.doing);
  if (!flight.error.empty()) text += fmt::format("  error: {}\n", flight.error);
  std::size_t open = 0;
  for (const Record& r : flight.records) {
    if (r.state == Record::State::done) continue;
    if (open++ < kShownOperations) text += fmt::format("  {}\n", line_of(flight, r));
  }
  if (open > kShownOperations)
    text += fmt::format("  and {} more that are not done\n", open - kShownOperations);
  if (open == 0 && !flight.records.empty())
    text += fmt::format("  nothing open; last: {}\n", line_of(flight, flight.records.back()));
  return text;
}

std::string HangAnalysis::evidence() const {
  std::string text;
  const std::string first = first_line();
  std::set<std::string> told{first};
  for (const Cause& cause : causes())
    if (told.insert(text_of(cause)).second) text += fmt::format("also: {}\n", text_of(cause));
  for (const Rank r : participants()) {
    const auto found = flights_.find(r);
    text +=
        found == flights_.end() ? fmt::format("rank {}: no record\n", r) : lines_of(*found->second);
  }
  return text;
}

}  // namespace

std::string verdict(const std::vector<Flight>& flights, int size) {
  const HangAnalysis analysis(flights, size);
  return analysis.first_line() + "\n" + analysis.evidence();
}

}  // namespace laconic
