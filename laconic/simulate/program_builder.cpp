#include "laconic/simulate/program_builder.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "laconic/architecture/grid_time.hpp"
#include "laconic/base/index.hpp"
#include "laconic/base/text.hpp"
#include "laconic/engine/segment.hpp"

namespace laconic {

namespace {

double seconds_at(double amount, double rate) {
  return rate > 0 ? amount / rate : 0;
}

}  // namespace

ProgramTooLarge::ProgramTooLarge(std::uint64_t messages)
    : std::runtime_error(
          fmt::format("more than {} messages", with_commas(static_cast<std::int64_t>(messages)))) {}

ProgramBuilder::ProgramBuilder(const Hosts& hosts, const std::vector<Seat>& seats,
                               RankClasses classes, RunPrecision precision, ProgramBounds bounds)
    : hosts_(hosts),
      seats_(seats),
      classes_(std::move(classes)),
      precision_(precision),
      bounds_(bounds) {
  program_.ranks = classes_.count();
  add_network();
  add_workers();
}

const HostGroup& ProgramBuilder::group_of(int rank) const {
  const Rank first = classes_.first[index(rank)];
  return hosts_.groups[index(seats_[index(first)].group)];
}

int ProgramBuilder::add_link(const Link& link, double hosts, const std::string& name) {
  if (link.bits_per_second <= 0) return NetworkMap::kNoLink;
  program_.network.bytes_per_second.push_back(kTcpShare * link.bits_per_second / 8 * hosts);
  program_.network.burst_bytes.push_back(link.burst_bytes * hosts);
  program_.network.names.push_back(name);
  return static_cast<int>(program_.network.names.size()) - 1;
}

NetworkMap::Port ProgramBuilder::add_port(const Link& link, double hosts, const std::string& name) {
  NetworkMap::Port port{.latency = link.latency_seconds};
  port.out = add_link(link, hosts, name + " out");
  port.in = link.full_duplex ? add_link(link, hosts, name + " in") : port.out;
  return port;
}

// Hosts that have ranks of the same classes are one, with the links of all of them.
void ProgramBuilder::add_network() {
  std::map<int, int> number_of_host;
  for (int rank = 0; rank < program_.ranks; ++rank) {
    const Seat& seat = seats_[index(classes_.first[index(rank)])];
    const HostGroup& group = hosts_.groups[index(seat.group)];
    const auto [found, is_new] =
        number_of_host.try_emplace(seat.host, static_cast<int>(program_.network.hosts.size()));
    program_.network.host_of_rank.push_back(found->second);
    if (!is_new) continue;
    const double alike = classes_.members[index(rank)];
    const std::string name = fmt::format("host {}", seat.host);
    program_.network.group_of_host.push_back(seat.group);
    program_.network.hosts.push_back(add_port(group.card, alike, name));
    program_.network.inside.push_back({.out = add_link(group.inside, alike, name + " inside"),
                                       .latency = group.inside.latency_seconds});
  }
  for (const HostGroup& group : hosts_.groups)
    program_.network.groups.push_back(group.uplink ? add_port(*group.uplink, 1, group.name)
                                                   : NetworkMap::Port());
}

// Ranks that compute on processors of their own have one core each: rates are of all that they
// have. Handling takes from it.
void ProgramBuilder::add_workers() {
  std::map<int, int> processor_of_group;
  for (int rank = 0; rank < program_.ranks; ++rank) {
    const HostGroup& group = group_of(rank);
    const int number = seats_[index(classes_.first[index(rank)])].group;
    int processor = -1;
    if (group.cores > 0) {
      const auto [found, is_new] =
          processor_of_group.try_emplace(number, static_cast<int>(program_.cores.size()));
      if (is_new) program_.cores.push_back(group.cores);
      processor = found->second;
    } else if (!group.device.is_gpu) {
      processor = static_cast<int>(program_.cores.size());
      program_.cores.push_back(1);
    }
    const auto add = [&](bool is_main) {
      program_.workers.push_back({.rank = rank, .processor = processor, .is_main = is_main});
      return static_cast<int>(program_.workers.size()) - 1;
    };
    main_.push_back(add(true));
    progress_.push_back(add(false));
    program_.handlers.push_back(add(false));
  }
}

int ProgramBuilder::add_main(int rank) {
  program_.strands.push_back({.worker = main_[index(rank)], .starts_alone = true, .acts = {}});
  return static_cast<int>(program_.strands.size()) - 1;
}

int ProgramBuilder::add_background(int rank, std::uint64_t key, Traffic traffic) {
  program_.strands.push_back(
      {.worker = progress_[index(rank)], .key = key, .traffic = traffic, .acts = {}});
  return static_cast<int>(program_.strands.size()) - 1;
}

void ProgramBuilder::act(int strand, StrandOp op, int number) {
  program_.strands[index(strand)].acts.push_back({.op = op, .index = number});
}

// Neighbouring computations of one kind are one, unless somebody could come between.
void ProgramBuilder::compute(int strand, WorkKind work, double seconds) {
  if (seconds <= 0) return;
  std::vector<StrandAct>& acts = program_.strands[index(strand)].acts;
  if (!acts.empty() && acts.back().op == StrandOp::compute && acts.back().work == work)
    acts.back().seconds += seconds;
  else
    acts.push_back({.op = StrandOp::compute, .work = work, .seconds = seconds});
}

int ProgramBuilder::begin_span(int strand, SpanName name) {
  program_.spans.push_back(name);
  const int span = static_cast<int>(program_.spans.size()) - 1;
  act(strand, StrandOp::begin, span);
  return span;
}

int ProgramBuilder::add_message(int from, int to, const Packet& packet) {
  if (bounds_.messages > 0 && program_.messages.size() >= bounds_.messages)
    throw ProgramTooLarge(bounds_.messages);
  const double senders = classes_.members[index(from)], receivers = classes_.members[index(to)];
  const double flows = packet.count * senders;
  // A mean of several may have half a byte, and is one segment more or less.
  const double whole = packet.message_bytes;
  const double segments = static_cast<double>(segments_of(
      static_cast<std::uint64_t>(whole), static_cast<std::size_t>(program_.segment_bytes)));
  const double bytes = flows * (whole + static_cast<double>(kSegmentTrailer) * segments);
  const HostDevice& receiver = device_of(to);
  program_.messages.push_back(
      {.from = from,
       .to = to,
       .way = packet.way,
       .traffic = packet.traffic,
       .key = packet.key,
       .bytes = bytes,
       .flows = flows,
       .receive_seconds = seconds_at(bytes / receivers, receiver.handled_bytes_per_second) +
                          flows / receivers * receiver.message_seconds,
       .edge = packet.edge,
       .microbatch = packet.microbatch});
  return static_cast<int>(program_.messages.size()) - 1;
}

// A group that shares cores is as fast as a core as long as it has one.
double ProgramBuilder::multiply_add_seconds(int rank, double count) const {
  return seconds_at(
      count, device_of(rank).multiply_adds_per_second.at(static_cast<std::size_t>(precision_)));
}

double ProgramBuilder::element_seconds(int rank, double count) const {
  return seconds_at(count, device_of(rank).elements_per_second);
}

double ProgramBuilder::pass_samples(int rank) const {
  return device_of(rank).pass_samples.at(static_cast<std::size_t>(precision_));
}

double ProgramBuilder::update_seconds(int rank, double parameters) const {
  return seconds_at(parameters, device_of(rank).updates_per_second);
}

double ProgramBuilder::encode_seconds(int rank, const CodecSpec& codec, double elements,
                                      bool has_feedback) const {
  const CodecRate rate = codec_rate(device_of(rank), codec);
  return seconds_at(4 * elements, has_feedback ? rate.feedback : rate.encode);
}

// What is raw is read and added while it is handled.
double ProgramBuilder::decode_seconds(int rank, const CodecSpec& codec, double elements) const {
  if (!is_lossy(codec)) return 0;
  return seconds_at(4 * elements, codec_rate(device_of(rank), codec).decode);
}

double ProgramBuilder::copy_seconds(int rank, double bytes) const {
  return seconds_at(bytes, device_of(rank).copy_bytes_per_second);
}

}  // namespace laconic
