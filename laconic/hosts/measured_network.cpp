#include "laconic/hosts/measured_network.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace laconic {

namespace {

// What is measured of a link is payload that goes one way; a hosts file has the link's own rate.
constexpr double kPayloadShare = 1448.0 / 1514;
constexpr double kAlikeRates = 2;    // a rate is that of some 30 ms, on networks that others use
constexpr double kAlikeLatency = 3;  // and a latency the median of a few round trips
constexpr double kNoLatency = 1e-3;  // what differs by less is at one place

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace

double lesser(double a, double b) {
  return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b);
}

Link link_between(const std::vector<std::size_t>& from, const std::vector<std::size_t>& to,
                  const MeasuredLinks& links) {
  std::vector<double> latencies;
  double slowest = 0;
  for (const std::size_t a : from)
    for (const std::size_t b : to) {
      if (a == b || links.bits_per_second.empty()) continue;
      const double rate = links.bits_per_second[a][b], latency = links.latency_seconds[a][b];
      if (std::isfinite(rate)) slowest = lesser(slowest, rate / kPayloadShare);
      if (std::isfinite(latency)) latencies.push_back(latency);
    }
  return {.bits_per_second = slowest, .latency_seconds = median(std::move(latencies))};
}

MeasuredNetwork::MeasuredNetwork(const std::vector<std::vector<std::size_t>>& machines,
                                 const MeasuredLinks& links)
    : between_(machines.size(), std::vector<Link>(machines.size())), place_(machines.size(), -1) {
  for (std::size_t a = 0; a < machines.size(); ++a)
    for (std::size_t b = 0; b < machines.size(); ++b) {
      if (a == b) continue;
      const Link there = link_between(machines[a], machines[b], links),
                 back = link_between(machines[b], machines[a], links);
      between_[a][b] = {lesser(there.bits_per_second, back.bits_per_second),
                        std::max(there.latency_seconds, back.latency_seconds)};
    }
  for (std::size_t m = 0; m < machines.size(); ++m) {
    for (int place = 0; place < places_ && place_[m] < 0; ++place) {
      bool is_near = true;
      for (std::size_t other = 0; other < m; ++other)
        is_near = is_near && (place_[other] != place || are_near(m, other));
      if (is_near) place_[m] = place;
    }
    if (place_[m] < 0) place_[m] = places_++;
  }
}

double MeasuredNetwork::best_rate(std::size_t machine) const {
  double best = 0;
  for (const Link& link : between_[machine]) best = std::max(best, link.bits_per_second);
  return best;
}

double MeasuredNetwork::least_latency(std::size_t machine) const {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t other = 0; other < between_.size(); ++other)
    if (other != machine) least = std::min(least, between_[machine][other].latency_seconds);
  return least;
}

bool MeasuredNetwork::are_near(std::size_t a, std::size_t b) const {
  const Link& link = between_[a][b];
  if (link.bits_per_second == 0) return true;  // nobody knows
  const double cards = std::min(best_rate(a), best_rate(b));
  const double nearest = std::min(least_latency(a), least_latency(b));
  return kAlikeRates * link.bits_per_second >= cards &&
         link.latency_seconds <= kAlikeLatency * nearest + kNoLatency;
}

bool MeasuredNetwork::has_like_card(std::size_t a, std::size_t b) const {
  const auto [slower, faster] = std::minmax({best_rate(a), best_rate(b)});
  return faster <= kAlikeRates * slower;
}

// The slowest pair of those machines counts; of a lone one the best pair, since others may have
// slower cards. One that is alone at its place has its latency in the uplink.
Link MeasuredNetwork::card_of(const std::vector<std::size_t>& machines) const {
  Link card;
  for (const std::size_t a : machines)
    for (const std::size_t b : machines)
      if (a != b)
        card = {lesser(card.bits_per_second, between_[a][b].bits_per_second),
                std::max(card.latency_seconds, between_[a][b].latency_seconds)};
  if (machines.size() > 1 || between_.size() == 1) return card;
  const std::size_t lone = machines.front();
  std::vector<double> latencies;
  for (std::size_t other = 0; other < between_.size(); ++other)
    if (other != lone && place_[other] == place_[lone])
      latencies.push_back(between_[lone][other].latency_seconds);
  return {.bits_per_second = best_rate(lone), .latency_seconds = median(std::move(latencies))};
}

// Pairs that measured at the same time shared what lies between, so the fastest counts.
Link MeasuredNetwork::between_places(int a, int b) const {
  Link link;
  std::vector<double> latencies;
  for (std::size_t from = 0; from < between_.size(); ++from)
    for (std::size_t to = 0; to < between_.size(); ++to) {
      if (place_[from] != a || place_[to] != b) continue;
      link.bits_per_second = std::max(link.bits_per_second, between_[from][to].bits_per_second);
      latencies.push_back(between_[from][to].latency_seconds);
    }
  link.latency_seconds = median(std::move(latencies));
  return link;
}

// A message waits for both uplinks, so latencies u of uplinks should make u_a + u_b what lies
// between places a and b, as nearly as they can: least squares, which for k > 2 places are solved
// by (s_a - t / (k - 1)) / (k - 2), with s_a the sum over all others of a, and t over all pairs.
double MeasuredNetwork::latency_to_others(int place) const {
  double own = 0, all = 0;
  for (int a = 0; a < places_; ++a)
    for (int b = a + 1; b < places_; ++b) {
      const double latency = between_places(a, b).latency_seconds;
      all += latency;
      if (a == place || b == place) own += latency;
    }
  if (places_ == 2) return own / 2;
  return std::max(0.0, (own - all / (places_ - 1)) / (places_ - 2));
}

// An uplink is at least as fast as the fastest that came over it: slower ones met another.
std::optional<Link> MeasuredNetwork::uplink_of(int place, const std::vector<std::size_t>& machines,
                                               double card_rate) const {
  if (places_ < 2) return std::nullopt;
  Link uplink{.latency_seconds = latency_to_others(place)};
  for (int other = 0; other < places_; ++other)
    if (other != place)
      uplink.bits_per_second =
          std::max(uplink.bits_per_second, between_places(place, other).bits_per_second);
  const bool is_slow = kAlikeRates * uplink.bits_per_second < card_rate;
  if (!is_slow) uplink.bits_per_second = card_rate * static_cast<double>(machines.size());
  if (!is_slow && uplink.latency_seconds == 0) return std::nullopt;
  return uplink;
}

}  // namespace laconic
