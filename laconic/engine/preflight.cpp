#include "laconic/engine/preflight.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/file/json.hpp"
#include "laconic/transport/tag.hpp"

namespace laconic {

namespace {

enum class Act : std::uint32_t { facts, measure, findings, report };

constexpr int kPings = 9;
constexpr int kFewPings = 3;             // are enough where a round trip is long
constexpr double kLongPings = 0.1;       // seconds
constexpr double kLongTransfer = 0.030;  // seconds
constexpr std::size_t kFirstTransfer = std::size_t{16} << 10;
constexpr std::size_t kLastTransfer = std::size_t{4} << 20;
// Deadlines that a peer may need because of others: it is held up in the first act by one whom it
// cannot reach, and must not be taken for unreachable in the second because of that. The third
// act waits longer still.
constexpr int kPatience = 2;
constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

Tag tag_of(Act act) {
  return make_tag({.traffic = Traffic::preflight, .unit = static_cast<std::uint32_t>(act)});
}

ByteView bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What one rank finds out, and tells rank 0.
struct Findings {
  std::vector<LinkFailure> failures;
  std::vector<std::string> hosts;  // by rank, as far as known
  std::vector<double> latency_ms;  // to each rank
  std::vector<double> mbit_per_s;
};

std::string to_json(const Findings& findings) {
  nlohmann::json failures = nlohmann::json::array();
  for (const LinkFailure& f : findings.failures)
    failures.push_back({{"peer", f.peer}, {"why", f.why}});
  const nlohmann::json json = {{"failures", failures},
                               {"hosts", findings.hosts},
                               {"latency_ms", findings.latency_ms},
                               {"mbit_per_s", findings.mbit_per_s}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

double number_or_nan(const nlohmann::json& json) {
  return json.is_null() ? kNotMeasured : json.get<double>();
}

Findings parse_findings(const std::string& text, Rank from, std::size_t size) {
  const nlohmann::json json = parse_json(text, fmt::format("findings of rank {}", from));
  Findings findings;
  for (const auto& f : json.at("failures"))
    findings.failures.push_back({from, f.at("peer").get<Rank>(), f.at("why").get<std::string>()});
  findings.hosts = json.at("hosts").get<std::vector<std::string>>();
  for (const auto& x : json.at("latency_ms")) findings.latency_ms.push_back(number_or_nan(x));
  for (const auto& x : json.at("mbit_per_s")) findings.mbit_per_s.push_back(number_or_nan(x));
  const bool are_peers_ranks = std::all_of(
      findings.failures.begin(), findings.failures.end(),
      [&](const LinkFailure& f) { return f.peer >= 0 && static_cast<std::size_t>(f.peer) < size; });
  if (!are_peers_ranks || findings.hosts.size() != size || findings.latency_ms.size() != size ||
      findings.mbit_per_s.size() != size)
    throw WireError(0, "findings", fmt::format("rank {} knows another number of ranks", from));
  return findings;
}

// One rank's part in the three acts.
class Participant {
 public:
  Participant(Transport& transport, const RankFacts& mine, const PreflightOptions& options)
      : transport_(transport),
        options_(options),
        size_(static_cast<std::size_t>(transport.size())) {
    facts_.resize(size_);
    for (std::size_t r = 0; r < size_; ++r) facts_[r].rank = static_cast<Rank>(r);
    facts_[index(self())] = mine;
    facts_[index(self())].rank = self();
    findings_.latency_ms.assign(size_, kNotMeasured);
    findings_.mbit_per_s.assign(size_, kNotMeasured);
  }

  PreflightReport run() {
    exchange_facts();
    if (options_.measure && are_told_the_same()) measure();
    for (const RankFacts& facts : facts_) findings_.hosts.push_back(facts.host);
    return self() == 0 ? lead() : follow();
  }

 private:
  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  Rank self() const { return transport_.rank(); }
  bool can_reach(Rank peer) const;
  void send(Rank peer, Tag tag, ByteView bytes, Deadline until);
  Bytes recv(Rank peer, Tag tag, Deadline until);
  void guarded(Rank peer, const std::function<void()>& act);
  void for_each_peer(const std::function<void(Rank)>& act);

  void exchange_facts();
  bool are_told_the_same() const;
  void introduce(Rank peer, Deadline until);
  void measure();
  void measure(const std::pair<Rank, Rank>& pair);
  void probe(Rank peer);
  void answer(Rank peer);
  double round_trip(Rank peer, const Bytes& message);
  double median_ping(Rank peer);
  double megabits_per_second(Rank peer, double ping);

  PreflightReport lead();
  PreflightReport follow();
  PreflightReport report_of(const std::vector<Findings>& all);

  Transport& transport_;
  const PreflightOptions options_;
  const std::size_t size_;
  std::mutex mutex_;  // guards what follows, while threads talk to several peers at once
  std::vector<RankFacts> facts_;
  Findings findings_;
};

void Participant::send(Rank peer, Tag tag, ByteView bytes, Deadline until) {
  transport_.send(peer, tag, bytes, until);
  if (options_.meter != nullptr)
    options_.meter->sent(Traffic::preflight, peer, {1, bytes.size(), bytes.size()});
}

Bytes Participant::recv(Rank peer, Tag tag, Deadline until) {
  Bytes bytes = transport_.recv(peer, tag, until);
  if (options_.meter != nullptr)
    options_.meter->received(Traffic::preflight, peer, {1, 0, bytes.size()});
  return bytes;
}

bool Participant::can_reach(Rank peer) const {
  return std::none_of(findings_.failures.begin(), findings_.failures.end(),
                      [&](const LinkFailure& f) { return f.peer == peer; });
}

// Whatever goes wrong with a peer is noted, and the pre-flight goes on without it.
void Participant::guarded(Rank peer, const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    findings_.failures.push_back({self(), peer, error.what()});
  }
}

// All at once: peers that cannot be reached cost one deadline together, not one each.
void Participant::for_each_peer(const std::function<void(Rank)>& act) {
  std::vector<Rank> peers;
  for (Rank peer = 0; peer < transport_.size(); ++peer)
    if (peer != self() && can_reach(peer)) peers.push_back(peer);
  std::vector<std::thread> threads;
  for (const Rank peer : peers)
    threads.emplace_back([&, peer] { guarded(peer, [&] { act(peer); }); });
  for (std::thread& thread : threads) thread.join();
}

void Participant::exchange_facts() {
  const Deadline until = in(options_.deadline);
  for_each_peer([&](Rank peer) { introduce(peer, until); });
}

// Two messages each way, so that both know when only one direction works. Only rank 0 compares
// configurations.
void Participant::introduce(Rank peer, Deadline until) {
  const Tag tag = tag_of(Act::facts);
  RankFacts mine;
  {
    const std::lock_guard lock(mutex_);
    mine = facts_[index(self())];
  }
  if (peer != 0) mine.config_text.clear();
  send(peer, tag, bytes_of(to_json(mine)), until);
  RankFacts theirs = parse_rank_facts(text_of(recv(peer, tag, until)));
  theirs.rank = peer;
  send(peer, tag, {}, until);
  recv(peer, tag, until);
  const std::lock_guard lock(mutex_);
  facts_[index(peer)] = theirs;
}

// Ranks that differ will refuse each other, and may not even agree whether to measure: one would
// wait for the answers of another that does not measure. All who know of a difference leave it.
bool Participant::are_told_the_same() const {
  const RankFacts& mine = facts_[index(self())];
  return std::all_of(facts_.begin(), facts_.end(), [&](const RankFacts& f) {
    return f.version.empty() ||  // could not be reached: another problem
           (f.version == mine.version && f.config_digest == mine.config_digest);
  });
}

void Participant::measure() {
  for (const auto& round : pairings(transport_.size()))
    for (const auto& pair : round)
      if (pair.first == self() || pair.second == self()) measure(pair);
}

// The lower rank goes first.
void Participant::measure(const std::pair<Rank, Rank>& pair) {
  const bool is_first = pair.first == self();
  const Rank peer = is_first ? pair.second : pair.first;
  if (!can_reach(peer)) return;
  guarded(peer, [&] {
    if (is_first) probe(peer);
    answer(peer);
    if (!is_first) probe(peer);
  });
}

// Sends until it has seen enough; an empty message ends it.
void Participant::probe(Rank peer) {
  const double ping = median_ping(peer);
  findings_.latency_ms[index(peer)] = 1e3 * ping / 2;
  findings_.mbit_per_s[index(peer)] = megabits_per_second(peer, ping);
  send(peer, tag_of(Act::measure), {}, in(options_.deadline));
}

void Participant::answer(Rank peer) {
  const Tag tag = tag_of(Act::measure);
  const Bytes yes(1, std::byte{1});
  while (!recv(peer, tag, in(kPatience * options_.deadline)).empty())
    send(peer, tag, yes, in(options_.deadline));
}

double Participant::round_trip(Rank peer, const Bytes& message) {
  const Tag tag = tag_of(Act::measure);
  const Stopwatch watch;
  send(peer, tag, message, in(options_.deadline));
  recv(peer, tag, in(kPatience * options_.deadline));
  return watch.seconds();
}

double Participant::median_ping(Rank peer) {
  const Bytes ping(1, std::byte{1});
  round_trip(peer, ping);  // whoever was late for this round is here now
  std::vector<double> seconds;
  const Stopwatch watch;
  for (int i = 0; i < kPings && (i < kFewPings || watch.seconds() < kLongPings); ++i)
    seconds.push_back(round_trip(peer, ping));
  std::nth_element(seconds.begin(), seconds.begin() + std::ssize(seconds) / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

// Ever longer messages; the last one counts. What a ping takes is not the rate's fault, but where
// it is nearly all of the time, the rate is not known better than this.
double Participant::megabits_per_second(Rank peer, double ping) {
  for (std::size_t bytes = kFirstTransfer;; bytes *= 4) {
    const double elapsed = round_trip(peer, Bytes(bytes, std::byte{1}));
    const double transfer = std::max(elapsed - ping, elapsed / 10);
    if (transfer >= kLongTransfer || bytes >= kLastTransfer)
      return 8e-6 * static_cast<double>(bytes) / transfer;
  }
}

PreflightReport Participant::lead() {
  std::vector<Findings> all(size_);
  const Deadline until = in(2 * kPatience * options_.deadline);
  for_each_peer([&](Rank peer) {
    const Bytes bytes = recv(peer, tag_of(Act::findings), until);
    all[index(peer)] = parse_findings(text_of(bytes), peer, size_);
  });
  all[0] = findings_;
  const PreflightReport report = report_of(all);
  const std::string json = to_json(report);
  for_each_peer(
      [&](Rank peer) { send(peer, tag_of(Act::report), bytes_of(json), in(options_.deadline)); });
  return report;
}

PreflightReport Participant::follow() {
  std::optional<PreflightReport> report;
  if (can_reach(0))
    guarded(0, [&] {
      send(0, tag_of(Act::findings), bytes_of(to_json(findings_)), in(options_.deadline));
      report = parse_preflight_report(
          text_of(recv(0, tag_of(Act::report), in(3 * kPatience * options_.deadline))));
    });
  if (report) return *report;
  std::vector<Findings> mine(size_);
  mine[index(self())] = findings_;
  return report_of(mine);
}

PreflightReport Participant::report_of(const std::vector<Findings>& all) {
  PreflightReport report;
  report.facts = facts_;
  std::vector<LinkFailure> failures;
  for (const Findings& findings : all) {
    const std::vector<double> nothing(size_, kNotMeasured);
    const bool is_there = !findings.latency_ms.empty();
    report.latency_ms.push_back(is_there ? findings.latency_ms : nothing);
    report.mbit_per_s.push_back(is_there ? findings.mbit_per_s : nothing);
    failures.insert(failures.end(), findings.failures.begin(), findings.failures.end());
    for (std::size_t r = 0; r < findings.hosts.size(); ++r)
      if (report.facts[r].host.empty()) report.facts[r].host = findings.hosts[r];
  }
  report.problems = check_links(failures, report.facts);
  const Problems differences = check_facts(report.facts);
  report.problems.insert(report.problems.end(), differences.begin(), differences.end());
  for (RankFacts& facts : report.facts) facts.config_text.clear();
  return report;
}

}  // namespace

std::vector<std::vector<std::pair<Rank, Rank>>> pairings(int size) {
  // Rank 0 sits still, the others walk around a table; who sits opposite is the partner. With an
  // odd number one chair is empty.
  const int chairs = size + size % 2;
  std::vector<std::vector<std::pair<Rank, Rank>>> rounds;
  if (size < 2) return rounds;
  const auto seated = [&](int round, int chair) {
    return chair == 0 ? 0 : 1 + (chair - 1 + round) % (chairs - 1);
  };
  for (int round = 0; round + 1 < chairs; ++round) {
    rounds.emplace_back();
    for (int chair = 0; chair < chairs / 2; ++chair) {
      const auto [low, high] =
          std::minmax({seated(round, chair), seated(round, chairs - 1 - chair)});
      if (high < size) rounds.back().emplace_back(low, high);
    }
  }
  return rounds;
}

PreflightReport preflight(Transport& transport, const RankFacts& mine,
                          const PreflightOptions& options) {
  return Participant(transport, mine, options).run();
}

}  // namespace laconic
