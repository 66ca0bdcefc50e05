// bench/transport_bench.cpp — how fast a transport moves bytes between two ranks of one machine.
//
//   transport_bench [--transport in_process|gloo] [--seconds S] [--json FILE]
//   transport_bench --memory RANKS [--bytes N] [--json FILE]
//
// With --memory: what a rank of gloo, with an engine, needs for each other rank. So many processes
// send N bytes (default 1 MB) to each other 40 times; rank 0 prints how much more it held at most
// than before it met the others.
//
// Two figures: the round trip of 8 bytes, halved (median and the slowest of a
// hundred), and one-way bandwidth by size of message, next to memcpy of the same
// size in the same run. One way: rank 0 sends as many as it can in S seconds, rank 1
// receives and says when it has them all. Ranks are processes with gloo and threads
// with in_process. 1 MB = 10^6 bytes.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "laconic/base/clock.hpp"
#include "laconic/engine/engine.hpp"
#include "laconic/rendezvous/open.hpp"
#include "laconic/rendezvous/socket.hpp"
#include "laconic/transport/in_process.hpp"

namespace {

using laconic::Bytes;
using laconic::Rank;
using laconic::Stopwatch;
using laconic::Transport;

constexpr std::size_t kSizes[] = {1024, 16384, 262144, 1 << 20, 16 << 20, 64 << 20};
constexpr int kRoundTrips = 5000;
constexpr laconic::Tag kPing = 1, kPong = 2, kData = 3, kDone = 4, kTaken = 5;
constexpr std::size_t kWindow = 8;  // messages between two signs of life from the receiver

struct Options {
  int memory_ranks = 0;
  std::size_t bytes = 1'000'000;
  std::string transport = "gloo";
  double seconds = 1;
  std::string json;
};

laconic::Deadline soon() {
  return laconic::in(std::chrono::minutes(1));
}

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double memcpy_speed(std::size_t bytes) {
  const Bytes from(bytes, std::byte{1});
  Bytes to(bytes, std::byte{2});
  double best = 0;
  for (int pass = 0; pass < 10; ++pass) {
    const Stopwatch watch;
    std::memcpy(to.data(), from.data(), bytes);
    best = std::max(best, static_cast<double>(bytes) / watch.seconds());
  }
  return best;
}

// ---- rank 1 answers

void answer(Transport& transport) {
  for (int i = 0; i < kRoundTrips; ++i)
    transport.send(0, kPong, transport.recv(0, kPing, soon()), soon());
  for (const std::size_t bytes : kSizes) {
    for (std::size_t taken = 0;; ++taken) {
      if (taken % kWindow == kWindow - 1) transport.send(0, kTaken + bytes, {}, soon());
      if (transport.recv(0, kData, soon()).empty()) break;
    }
    transport.send(0, kDone, {}, soon());
  }
}

// ---- rank 0 measures

nlohmann::json measure_latency(Transport& transport) {
  const Bytes message(8, std::byte{7});
  std::vector<double> trips;
  const double before = processor_seconds();
  for (int i = 0; i < kRoundTrips; ++i) {
    const Stopwatch watch;
    transport.send(1, kPing, message, soon());
    transport.recv(1, kPong, soon());
    trips.push_back(watch.seconds() * 1e6 / 2);
  }
  std::sort(trips.begin(), trips.end());
  const double median = trips[trips.size() / 2];
  const double slow = trips[trips.size() * 99 / 100];
  const double busy = (processor_seconds() - before) * 1e6 / kRoundTrips;
  fmt::print(
      "8 bytes, one way  {:6.1f} us median  {:8.1f} us at 99 %  {:6.1f} us of processor at rank "
      "0\n",
      median, slow, busy);
  return {{"median_us", median}, {"p99_us", slow}, {"processor_us", busy}};
}

nlohmann::json measure_bandwidth(Transport& transport, std::size_t bytes, double seconds) {
  const Bytes message(bytes, std::byte{9});
  const double before = processor_seconds();
  const Stopwatch watch;
  std::size_t count = 0;
  while (watch.seconds() < seconds) {
    // in_process has no credits: what the receiver has not taken would pile up.
    if (++count % kWindow == 0 && count > kWindow) transport.recv(1, kTaken + bytes, soon());
    transport.send(1, kData, message, soon());
  }
  transport.send(1, kData, {}, soon());
  transport.recv(1, kDone, soon());
  const double elapsed = watch.seconds();
  const double speed = static_cast<double>(count * bytes) / elapsed;
  const double copy = memcpy_speed(bytes);
  const double busy = (processor_seconds() - before) / elapsed;
  fmt::print("{:>9} bytes  {:8.0f} MB/s  memcpy {:8.0f} MB/s  {:.2f} processors at rank 0\n", bytes,
             speed / 1e6, copy / 1e6, busy);
  return {
      {"bytes", bytes}, {"bytes_per_s", speed}, {"memcpy_bytes_per_s", copy}, {"processors", busy}};
}

nlohmann::json measure(Transport& transport, double seconds) {
  nlohmann::json result{{"transport", transport.name()}};
  fmt::print("{}\n", transport.name());
  result["latency"] = measure_latency(transport);
  for (const std::size_t bytes : kSizes)
    result["bandwidth"].push_back(measure_bandwidth(transport, bytes, seconds));
  return result;
}

// ---- two ranks

nlohmann::json with_threads(const Options& options) {
  nlohmann::json result;
  laconic::run_ranks(2, [&](Transport& transport) {
    if (transport.rank() == 0)
      result = measure(transport, options.seconds);
    else
      answer(transport);
  });
  return result;
}

nlohmann::json with_processes(const Options& options) {
  laconic::Meeting meeting;
  meeting.size = 2;
  meeting.port = laconic::free_port();
  const pid_t child = ::fork();
  meeting.rank = child == 0 ? 1 : 0;
  const auto store = laconic::meet(meeting);
  const auto transport = laconic::make_gloo(meeting, *store);
  if (child == 0) {
    answer(*transport);
    std::exit(0);
  }
  nlohmann::json result = measure(*transport, options.seconds);
  ::waitpid(child, nullptr, 0);
  return result;
}

// ---- memory

std::size_t resident_bytes(const char* field) {  // VmRSS or VmHWM
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word)
    if (word == std::string(field) + ":") {
      std::size_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  throw std::runtime_error("no /proc/self/status");
}

void exchange(Transport& transport, std::size_t bytes) {
  laconic::Engine engine(transport);
  const auto message = std::make_shared<const Bytes>(bytes, std::byte{1});
  for (std::uint64_t turn = 0; turn < 40; ++turn) {
    const laconic::Tag tag = laconic::make_tag({laconic::Traffic::control, 0, turn});
    for (Rank peer = 0; peer < transport.size(); ++peer)
      if (peer != transport.rank()) engine.send({.to = peer, .tag = tag, .message = message});
    for (Rank peer = 0; peer < transport.size(); ++peer)
      if (peer != transport.rank()) engine.recv(peer, tag);
  }
  engine.flush();
}

nlohmann::json measure_memory(const Options& options) {
  laconic::Meeting meeting;
  meeting.size = options.memory_ranks;
  meeting.port = laconic::free_port();
  std::vector<pid_t> children;
  for (Rank rank = 1; rank < meeting.size && meeting.rank == 0; ++rank) {
    children.push_back(::fork());
    if (children.back() == 0) meeting.rank = rank;
  }
  const std::size_t before = resident_bytes("VmRSS");
  {
    const auto store = laconic::meet(meeting);
    const auto transport = laconic::make_gloo(meeting, *store);
    exchange(*transport, options.bytes);
  }
  if (meeting.rank > 0) std::exit(0);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  const auto more = static_cast<double>(resident_bytes("VmHWM") - before);
  const double each = more / (meeting.size - 1);
  fmt::print("{} ranks, messages of {} bytes: {:.1f} MB more, {:.2f} MB for each other rank\n",
             meeting.size, options.bytes, more / 1e6, each / 1e6);
  return {{"ranks", meeting.size}, {"bytes", options.bytes}, {"more_bytes", more}};
}

Options read_options(int count, char** words) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = words[i];
    if (name == "--transport") options.transport = words[i + 1];
    if (name == "--seconds") options.seconds = std::atof(words[i + 1]);
    if (name == "--memory") options.memory_ranks = std::atoi(words[i + 1]);
    if (name == "--bytes") options.bytes = std::strtoull(words[i + 1], nullptr, 10);
    if (name == "--json") options.json = words[i + 1];
  }
  return options;
}

}  // namespace

int main(int count, char** words) try {
  const Options options = read_options(count, words);
  const nlohmann::json result = options.memory_ranks > 1            ? measure_memory(options)
                                : options.transport == "in_process" ? with_threads(options)
                                                                    : with_processes(options);
  if (!options.json.empty()) std::ofstream(options.json) << result.dump(2) << "\n";
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "transport_bench: {}\n", error.what());
  return 1;
}
