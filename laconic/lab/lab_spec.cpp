#include "laconic/lab/lab_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "laconic/base/quantity.hpp"

namespace laconic {

namespace {

constexpr std::string_view kPrefix = "laconic-";
constexpr std::string_view kBridge = "bridge";
constexpr std::string_view kRun = "run-";
constexpr std::uint64_t kLeastRate = 100'000;
constexpr std::uint64_t kMostRate = 100'000'000'000;
constexpr double kBurstSeconds = 4e-3;
constexpr std::uint64_t kLeastBurst = 4096;       // two full packets: less would stop the link
constexpr std::uint64_t kLeastPortQueue = 49152;  // 32 full packets: TCP cannot live with fewer
constexpr std::uint64_t kLeastHostQueue = 1 << 20;

// Nobody has a lab of single bits.
constexpr std::span<const Unit> kRateUnits = std::span(kBitUnits).subspan(1);

bool is_name_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

bool is_good_name(std::string_view name) {
  return !name.empty() && name.size() <= 32 && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), is_name_letter);
}

// Without sign, and without zeros in front: one text for one number.
std::optional<int> parse_index(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  if (std::to_string(value) != text) return std::nullopt;
  return value;
}

Bucket make_bucket(std::uint64_t bits_per_second, double queue_ms, std::uint64_t least_queue) {
  const double bytes_per_second = static_cast<double>(bits_per_second) / 8;
  const auto burst = static_cast<std::uint64_t>(bytes_per_second * kBurstSeconds);
  const auto queue = static_cast<std::uint64_t>(bytes_per_second * queue_ms * 1e-3);
  Bucket bucket{bits_per_second, std::max(burst, kLeastBurst), 0};
  bucket.limit_bytes = bucket.burst_bytes + std::max(queue, least_queue);
  return bucket;
}

}  // namespace

Problems check(const LabSpec& spec) {
  Problems problems;
  if (!is_good_name(spec.name))
    problems.push_back(
        {"--name", fmt::format("'{}' is not made of 1 to 32 of a-z, 0-9 and -", spec.name)});
  if (spec.hosts < 1 || spec.hosts > kMostHosts)
    problems.push_back(
        {"--hosts", fmt::format("{} is not between 1 and {}", spec.hosts, kMostHosts)});
  if (!parse_rate(spec.rate))
    problems.push_back(
        {"--rate", fmt::format("'{}' is no rate between 100kbit and 100gbit; write 20mbit, "
                               "1.5gbit or unshaped",
                               spec.rate)});
  if (!(spec.queue_ms >= 1 && spec.queue_ms <= 10'000))
    problems.push_back({"--queue", fmt::format("{} ms is not between 1 and 10000", spec.queue_ms)});
  return problems;
}

std::optional<std::uint64_t> parse_rate(std::string_view text) {
  if (text == "unshaped") return 0;
  const std::optional<double> bits = parse_quantity(text, kRateUnits);
  if (!bits || !(*bits >= kLeastRate && *bits <= kMostRate)) return std::nullopt;
  return static_cast<std::uint64_t>(std::llround(*bits));
}

std::string rate_to_text(std::uint64_t bits_per_second) {
  if (bits_per_second == 0) return "unshaped";
  return quantity_text(static_cast<double>(bits_per_second), kRateUnits);
}

Bucket port_bucket(std::uint64_t bits_per_second, double queue_ms) {
  return make_bucket(bits_per_second, queue_ms, kLeastPortQueue);
}

Bucket host_bucket(std::uint64_t bits_per_second, double queue_ms) {
  return make_bucket(bits_per_second, queue_ms, kLeastHostQueue);
}

std::string host_namespace(const std::string& lab, int host) {
  return fmt::format("{}{}-{}", kPrefix, lab, host);
}

std::string bridge_namespace(const std::string& lab) {
  return fmt::format("{}{}-{}", kPrefix, lab, kBridge);
}

std::string host_address(int host) {
  return fmt::format("10.77.0.{}", host + 1);
}

std::optional<LabPart> parse_namespace(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || !is_good_name(name.substr(0, dash))) return std::nullopt;
  const std::string_view last = name.substr(dash + 1);
  LabPart part{std::string(name.substr(0, dash)), -1};
  if (last == kBridge) return part;
  const std::optional<int> host = parse_index(last);
  if (!host || *host >= kMostHosts) return std::nullopt;
  part.host = *host;
  return part;
}

std::string name_of_run(int process) {
  return fmt::format("{}{}", kRun, process);
}

std::optional<int> process_of_run(std::string_view lab) {
  if (!lab.starts_with(kRun)) return std::nullopt;
  return parse_index(lab.substr(kRun.size()));
}

}  // namespace laconic
