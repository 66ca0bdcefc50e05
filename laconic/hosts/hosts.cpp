#include "laconic/hosts/hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace laconic {

namespace {

constexpr int kMostHostsOfGroup = 1'000'000;
constexpr int kMostRanksOfHost = 1024;
constexpr int kMostRanksOfAll = 1'000'000;
constexpr double kMostBitsPerSecond = 1e14;
constexpr double kLeastBitsPerSecond = 1e3;
constexpr double kMostLatency = 60;

// Collects what is wrong with one group.
class GroupCheck {
 public:
  GroupCheck(std::string where, Problems& problems)
      : where_(std::move(where)), problems_(problems) {}

  void require(bool holds, const std::string& what) {
    if (!holds) problems_.push_back({where_, what});
  }
  void count(const char* key, int value, int least, int most) {
    require(value >= least && value <= most,
            fmt::format("{} = {} is not in {} to {}", key, value, least, most));
  }
  // Also refuses NaN.
  void amount(const std::string& key, double value) {
    require(value >= 0 && value <= kLargestAmount,
            fmt::format("{} = {} is not in 0 to {}", key, value, kLargestAmount));
  }
  void link(const std::string& key, const Link& link, bool may_have_no_limit) {
    const bool is_unlimited = may_have_no_limit && link.bits_per_second == 0;
    require(is_unlimited || (link.bits_per_second >= kLeastBitsPerSecond &&
                             link.bits_per_second <= kMostBitsPerSecond),
            fmt::format("{}.rate = {} bit/s is not in 1 kbit/s to 100 Tbit/s", key,
                        link.bits_per_second));
    require(link.latency_seconds >= 0 && link.latency_seconds <= kMostLatency,
            fmt::format("{}.latency = {} s is not in 0 to {} s", key, link.latency_seconds,
                        kMostLatency));
  }

 private:
  std::string where_;
  Problems& problems_;
};

// As the file has them: two operations are a multiply-add.
void check_passes(GroupCheck& c, const std::string& where, const ByPrecision& multiply_adds,
                  const ByPrecision& pass_samples) {
  for (const Named<RunPrecision>& precision : kRunPrecisionNames) {
    const auto p = static_cast<std::size_t>(precision.value);
    c.amount(fmt::format("{}flops.{}", where, precision.name), 2 * multiply_adds[p]);
    c.amount(fmt::format("{}pass_samples.{}", where, precision.name), pass_samples[p]);
  }
}

bool is_any_known(const ByPrecision& numbers) {
  return std::ranges::any_of(numbers, [](double number) { return number != 0; });
}

void check_device(GroupCheck& c, const HostDevice& device) {
  const auto key = [&](std::string_view name) {
    return fmt::format("device '{}': {}", device.name, name);
  };
  c.amount(key("memory"), device.memory_bytes);
  c.amount(key("elements"), device.elements_per_second);
  c.amount(key("updates"), device.updates_per_second);
  c.amount(key("copy"), device.copy_bytes_per_second);
  c.amount(key("factors product"), device.factors.product);
  c.amount(key("factors orthonormal"), device.factors.orthonormal);
  c.amount(key("handled"), device.handled_bytes_per_second);
  c.amount(key("message_seconds"), device.message_seconds);
  c.amount(key("call_seconds"), device.call_seconds);
  check_passes(c, key(""), device.multiply_adds_per_second, device.pass_samples);
  c.require(is_any_known(device.multiply_adds_per_second),
            key("flops are not known in any precision"));
  for (const Named<ModelKind>& kind : kModelKindNames) {
    const PassRates& own = device.families[static_cast<std::size_t>(kind.value)];
    const std::string family = key(fmt::format("family.{}", kind.name));
    check_passes(c, family + ".", own.multiply_adds_per_second, own.pass_samples);
    c.require(is_any_known(own.multiply_adds_per_second) || !is_any_known(own.pass_samples),
              family + ".pass_samples goes with flops of that family, which are not there");
  }
  std::set<std::string> codecs;
  for (const CodecRate& rate : device.codecs) {
    c.amount(key("codec ") + rate.codec + " encode", rate.encode);
    c.amount(key("codec ") + rate.codec + " decode", rate.decode);
    c.amount(key("codec ") + rate.codec + " feedback", rate.feedback);
    c.require(codecs.insert(rate.codec).second, key("codec ") + rate.codec + " is there twice");
  }
  c.require(device.is_gpu || device.memory_bytes == 0,
            key("memory is for GPUs; a processor has its host's"));
}

void check_group(const HostGroup& group, bool is_alone, Problems& problems) {
  GroupCheck c(fmt::format("group '{}'", group.name), problems);
  c.count("hosts", group.hosts, 1, kMostHostsOfGroup);
  c.count("ranks_per_host", group.ranks_per_host, 1, kMostRanksOfHost);
  c.count("cores", group.cores, 0, kMostRanksOfAll);
  c.amount("memory", group.memory_bytes);
  c.require(group.cores == 0 || !group.device.is_gpu,
            fmt::format("cores = {} are shared by ranks that compute on processors, and '{}' is a "
                        "GPU",
                        group.cores, group.device.name));
  check_device(c, group.device);
  c.link("card", group.card, false);
  c.link("inside", group.inside, true);
  if (group.uplink) c.link("uplink", *group.uplink, false);
  c.require(!group.uplink || !is_alone, "has an uplink, but there is no other group");
}

double seconds_of(double amount, double rate) {
  return rate > 0 ? amount / rate : 0;
}

// Of a codec's text; of two codecs, one after the other, of the first.
std::pair<std::string_view, std::set<std::string>> kind_and_options(std::string_view text) {
  text = text.substr(0, text.find('+'));
  const std::size_t colon = std::min(text.find(':'), text.size());
  std::set<std::string> options;
  for (std::string_view rest = text.substr(std::min(colon + 1, text.size())); !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    options.emplace(rest.substr(0, comma));
    rest = rest.substr(std::min(comma + 1, rest.size()));
  }
  return {text.substr(0, colon), options};
}

}  // namespace

Hosts without_bursts(Hosts hosts) {
  for (HostGroup& group : hosts.groups) {
    group.card.burst_bytes = group.inside.burst_bytes = 0;
    if (group.uplink) group.uplink->burst_bytes = 0;
  }
  return hosts;
}

int rank_count(const Hosts& hosts) {
  int ranks = 0;
  for (const HostGroup& group : hosts.groups) ranks += group.ranks();
  return ranks;
}

int host_count(const Hosts& hosts) {
  int count = 0;
  for (const HostGroup& group : hosts.groups) count += group.hosts;
  return count;
}

std::vector<Seat> seats_of(const Hosts& hosts) {
  std::vector<Seat> seats;
  int first = 0;
  for (std::size_t g = 0; g < hosts.groups.size(); ++g) {
    for (int h = 0; h < hosts.groups[g].hosts; ++h)
      seats.insert(seats.end(), static_cast<std::size_t>(hosts.groups[g].ranks_per_host),
                   {.group = static_cast<int>(g), .host = first + h});
    first += hosts.groups[g].hosts;
  }
  return seats;
}

Hosts hosts_for(Hosts hosts, ModelKind kind) {
  for (HostGroup& group : hosts.groups) {
    HostDevice& device = group.device;
    const PassRates own = device.families[static_cast<std::size_t>(kind)];
    device.families = {};
    if (own == PassRates()) continue;
    device.factors = factor_rate(device);  // of products of any family
    for (std::size_t p = 0; p < own.multiply_adds_per_second.size(); ++p) {
      if (own.multiply_adds_per_second[p] == 0) continue;
      device.multiply_adds_per_second[p] = own.multiply_adds_per_second[p];
      device.pass_samples[p] = own.pass_samples[p];
    }
  }
  return hosts;
}

double core_share(const HostGroup& group) {
  if (group.cores == 0) return 1;
  return std::min(1.0, static_cast<double>(group.cores) / group.ranks());
}

double multiply_adds_of(const HostGroup& group, RunPrecision precision) {
  return core_share(group) *
         group.device.multiply_adds_per_second[static_cast<std::size_t>(precision)];
}

CodecRate codec_rate(const HostDevice& device, const CodecSpec& codec) {
  const std::string_view kind = name_of(codec);
  CodecRate best{std::string(kind), device.copy_bytes_per_second, device.copy_bytes_per_second};
  std::optional<std::set<std::string>> options;
  std::size_t most = 0;
  for (const CodecRate& rate : device.codecs) {
    const auto [name, wanted] = kind_and_options(rate.codec);
    if (name != kind || wanted.size() < most) continue;
    if (!wanted.empty() && !options) options = kind_and_options(to_text(codec)).second;
    if (!wanted.empty() && !std::ranges::includes(*options, wanted)) continue;
    best = rate;
    most = wanted.size();
  }
  const double both = seconds_of(1, best.encode) + seconds_of(1, best.decode);
  if (best.feedback == 0 && both > 0) best.feedback = 1 / both;
  return best;
}

FactorRate factor_rate(const HostDevice& device) {
  constexpr double kBytesOfColumn = 8;  // a column's float64, of a dot product or of what it takes
  const auto float32 = static_cast<std::size_t>(RunPrecision::float32);
  FactorRate rate = device.factors;
  if (rate.product == 0) rate.product = device.multiply_adds_per_second[float32];
  if (rate.orthonormal == 0) rate.orthonormal = 2 * device.copy_bytes_per_second / kBytesOfColumn;
  return rate;
}

Problems check(const Hosts& hosts) {
  Problems problems;
  const auto device_name = [](const HostGroup& group) { return group.device.name; };
  if (hosts.groups.empty()) return {{"hosts", "there is no [[group]]"}};
  std::set<std::string> names;
  double ranks = 0;
  for (const HostGroup& group : hosts.groups) {
    const HostGroup& first = *std::ranges::find(hosts.groups, group.device.name, device_name);
    if (first.device != group.device)
      problems.push_back({fmt::format("group '{}'", group.name),
                          fmt::format("its device '{}' is another one than that of group '{}'",
                                      group.device.name, first.name)});
    if (!names.insert(group.name).second)
      problems.push_back(
          {fmt::format("group '{}'", group.name), "there are two groups of that name"});
    check_group(group, hosts.groups.size() == 1, problems);
    ranks += static_cast<double>(group.hosts) * group.ranks_per_host;
  }
  if (ranks > kMostRanksOfAll)
    problems.push_back(
        {"hosts", fmt::format("{:.0f} ranks are more than {}", ranks, kMostRanksOfAll)});
  return problems;
}

}  // namespace laconic
