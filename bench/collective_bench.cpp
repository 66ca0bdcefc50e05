// bench/collective_bench.cpp — how long a collective takes, and how near it comes to its link.
//
//   collective_bench [--kind K] [--bytes N] [--codec C] [--feedback] [--algorithm A] [--rounds N]
//                    [--repeat N] [--ranks N] [--group N] [--shape TEXT] [--limit-mbit R]
//                    [--lane-elements N]
//                    [--segment-bytes N] [--json FILE]
//
// With RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment it is one rank of a gloo
// run; otherwise --ranks threads, over a network of the given --shape (transport/shape.hpp).
// --kind is all_reduce, all_gather or reduce_scatter, of a buffer of so many bytes in all, or
// all_to_all, where these are the bytes that all ranks together have for all, themselves included.
// With --group ranks meet by so many, all groups at once: 0 and 1, 2 and 3. --algorithm native is
// the transport's own sum. --limit-mbit is what one rank's link carries, by iperf3 for instance:
// `of_limit` is the share of it that the bytes on the wire used.
//
// A round begins when all ranks have met in a barrier, and lasts as long as it does at the slowest.
// It is --repeat collectives, one after the other; seconds are those of one. Rank 0 prints one JSON
// object: median, least and most seconds, bytes by its meter, and with gloo `processor_s`, the
// median of what all ranks' processors were busy with for one collective.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/philox.hpp"
#include "laconic/collective/run.hpp"
#include "laconic/rendezvous/open.hpp"
#include "laconic/transport/in_process.hpp"
#include "laconic/transport/shaped.hpp"

namespace {

using laconic::Algorithm;
using laconic::Collective;
using laconic::CollectiveKind;
using laconic::CollectiveSpec;
using laconic::Engine;
using laconic::Group;
using laconic::Traffic;
using laconic::Transport;

constexpr int kWarmUpRounds = 2;

struct Options {
  std::string kind = "all_reduce";
  std::uint64_t bytes = std::uint64_t{16} << 20;
  std::string codec = "raw";
  bool feedback = false;
  std::string algorithm = "direct";
  int rounds = 10;
  int repeat = 1;
  int ranks = 4;
  int group = 0;  // ranks of one; 0: all
  std::string shape;
  double limit_mbit = 0;
  std::uint64_t lane_elements = 0;
  std::size_t segment_bytes = laconic::EngineOptions{}.segment_bytes;
  std::string json;
};

Options parse(int count, char** words) {
  Options o;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--feedback") {
      o.feedback = true;
      continue;
    }
    if (i + 1 == count) throw laconic::ConfigError(word + " needs a value");
    const std::string value = words[++i];
    if (word == "--kind")
      o.kind = value;
    else if (word == "--bytes")
      o.bytes = std::stoull(value);
    else if (word == "--codec")
      o.codec = value;
    else if (word == "--algorithm")
      o.algorithm = value;
    else if (word == "--rounds")
      o.rounds = std::stoi(value);
    else if (word == "--repeat")
      o.repeat = std::max(1, std::stoi(value));
    else if (word == "--ranks")
      o.ranks = std::stoi(value);
    else if (word == "--group")
      o.group = std::stoi(value);
    else if (word == "--shape")
      o.shape = value;
    else if (word == "--limit-mbit")
      o.limit_mbit = std::stod(value);
    else if (word == "--lane-elements")
      o.lane_elements = std::stoull(value);
    else if (word == "--segment-bytes")
      o.segment_bytes = std::stoull(value);
    else if (word == "--json")
      o.json = value;
    else
      throw laconic::ConfigError(word + " is not an option");
  }
  return o;
}

// Of all threads of this process, so far; what the kernel does for them included.
double processor_seconds() {
  std::timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Group everybody(int ranks) {
  Group group;
  for (int rank = 0; rank < ranks; ++rank) group.push_back(rank);
  return group;
}

CollectiveKind kind_of(const Options& o) {
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                    CollectiveKind::reduce_scatter, CollectiveKind::all_to_all})
    if (o.kind == name_of(kind)) return kind;
  throw laconic::ConfigError("--kind " + o.kind +
                             " is not all_reduce, all_gather, reduce_scatter, all_to_all");
}

Group group_of(const Options& o, int rank, int ranks) {
  if (o.group == 0) return everybody(ranks);
  if (o.group < 2 || ranks % o.group != 0)
    throw laconic::ConfigError(
        fmt::format("--group {}: {} ranks are not groups of it", o.group, ranks));
  Group group;
  for (int member = 0; member < o.group; ++member)
    group.push_back(rank / o.group * o.group + member);
  return group;
}

CollectiveSpec spec_of(const Options& o, int rank, int ranks) {
  CollectiveSpec spec;
  spec.traffic = Traffic::dp_gradient;
  spec.kind = kind_of(o);
  spec.algorithm = laconic::algorithm_named(o.algorithm).value_or(Algorithm::direct);
  spec.group = group_of(o, rank, ranks);
  const int chunks =
      laconic::chunks_of(spec.kind, spec.algorithm, static_cast<int>(spec.group.size()));
  spec.offsets = laconic::cut(o.bytes / sizeof(float), chunks, 256);
  spec.up = spec.down = laconic::parse_codec(o.codec);
  spec.up_feedback = spec.down_feedback = o.feedback;
  spec.lane_elements = o.lane_elements;
  if (auto problems = check(spec); !problems.empty()) throw laconic::ConfigError(problems);
  return spec;
}

// --- one rank

class Bench {
 public:
  Bench(Transport& transport, const Options& options)
      : options_(options),
        transport_(transport),
        engine_(transport, {.segment_bytes = options.segment_bytes}),
        sum_(engine_, spec_of(options, transport.rank(), transport.size())),
        values_(options.bytes / sizeof(float)),
        buffer_(values_.size()) {
    const auto key = laconic::derive(laconic::key_of(7), static_cast<std::uint64_t>(rank()));
    laconic::fill_normal(key, 0, 0.0, 1.0, std::span<float>(values_));
  }

  nlohmann::json run() {
    std::vector<double> seconds, busy;
    for (int round = 0; round < kWarmUpRounds; ++round) of_all(time_round());
    engine_.flush();
    const auto before = engine_.meter().read();
    for (int round = 0; round < options_.rounds; ++round) {
      const Round spent = of_all(time_round());
      seconds.push_back(spent.seconds);
      busy.push_back(spent.processor);
    }
    engine_.flush();
    const auto spent = engine_.meter().read() - before;
    window_bytes_ = engine_.window().bytes();
    barrier(engine_, everybody(engine_.size()), Traffic::control, 1, number_++);
    engine_.flush();
    return rank() == 0 ? report(seconds, busy, spent) : nlohmann::json{};
  }

 private:
  // One collective, in seconds.
  struct Round {
    double seconds = 0;
    double processor = 0;
  };

  int rank() const { return engine_.rank(); }

  Round time_round() {
    buffer_ = values_;
    barrier(engine_, everybody(engine_.size()), Traffic::control, 0, number_);
    const laconic::Stopwatch watch;
    const double busy = processor_seconds();
    for (int i = 0; i < options_.repeat; ++i) collective();
    return {.seconds = watch.seconds() / options_.repeat,
            .processor = (processor_seconds() - busy) / options_.repeat};
  }

  void collective() {
    if (options_.algorithm == "native")
      return transport_.sum(buffer_, laconic::in(std::chrono::minutes(5)));
    sum_.begin(begun_++);
    laconic::run(engine_, *sum_.operation(reinterpret_cast<std::byte*>(buffer_.data()), 1));
    sum_.commit();
  }

  // The slowest, and the processors of all together.
  Round of_all(const Round& mine) {
    Round all{.seconds = mine.seconds};
    const auto bytes = laconic::as_bytes(std::span<const Round>(&mine, 1));
    for (const auto& theirs :
         gather_all(engine_, everybody(engine_.size()), Traffic::control, 2, number_++, bytes)) {
      all.seconds = std::max(all.seconds, laconic::get<double>(theirs, 0));
      all.processor += laconic::get<double>(theirs, sizeof(double));
    }
    return all;
  }

  nlohmann::json report(std::vector<double> seconds, std::vector<double> busy,
                        const laconic::MeterReading& spent) const {
    std::ranges::sort(seconds);
    std::ranges::sort(busy);
    const auto count = laconic::sent(spent, Traffic::dp_gradient);
    const double median = seconds[seconds.size() / 2];
    const int collectives = options_.rounds * options_.repeat;
    const double wire = static_cast<double>(count.wire_bytes) / collectives;
    const auto times = spent.times.find(Traffic::dp_gradient);
    nlohmann::json result{{"transport", transport_.name()},
                          {"shape", options_.shape},
                          {"ranks", engine_.size()},
                          {"bytes", options_.bytes},
                          {"kind", options_.kind},
                          {"codec", options_.codec},
                          {"algorithm", options_.algorithm},
                          {"rounds", options_.rounds},
                          {"median_s", median},
                          {"least_s", seconds.front()},
                          {"most_s", seconds.back()},
                          {"wire_bytes_per_round", wire},
                          {"messages", count.messages / collectives},
                          {"lanes", lanes_of(sum_.spec()).size()},
                          {"window_bytes", window_bytes_}};
    if (times != spent.times.end()) result["codec_s_per_round"] = times->second.codec / collectives;
    // Threads of one process cannot be told apart.
    if (transport_.name() != "in_process" && options_.shape.empty())
      result["processor_s"] = busy[busy.size() / 2];
    if (options_.limit_mbit > 0)
      result["of_limit"] = limit_bytes(wire) * 8 / (options_.limit_mbit * 1e6) / median;
    return result;
  }

  // What must leave a rank: by the meter, or by the formula where the engine does not see it.
  double limit_bytes(double wire) const {
    if (options_.algorithm != "native") return wire;
    const double n = engine_.size();
    return 2 * (n - 1) / n * static_cast<double>(options_.bytes);
  }

  const Options& options_;
  Transport& transport_;
  Engine engine_;
  Collective sum_;
  std::vector<float> values_, buffer_;
  std::uint64_t number_ = 0, begun_ = 0;
  std::uint64_t window_bytes_ = 0;  // its width at the end
};

// --- all ranks

nlohmann::json with_threads(const Options& options) {
  std::vector<std::thread> threads;
  nlohmann::json result;
  std::exception_ptr failure;
  for (auto& transport : laconic::make_in_process(options.ranks))
    threads.emplace_back([&, below = std::move(transport)]() mutable {
      try {
        if (!options.shape.empty())
          below = make_shaped(std::move(below), laconic::parse_shape(options.shape));
        nlohmann::json mine = Bench(*below, options).run();
        if (below->rank() == 0) result = std::move(mine);
      } catch (...) {
        if (below->rank() == 0) failure = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (failure != nullptr) std::rethrow_exception(failure);
  return result;
}

nlohmann::json with_gloo(const Options& options) {
  const auto variable = [](const char* name, const char* fallback) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : fallback);
  };
  laconic::Meeting meeting;
  meeting.rank = std::stoi(variable("RANK", "0"));
  meeting.size = std::stoi(variable("WORLD_SIZE", "1"));
  meeting.host = variable("MASTER_ADDR", "127.0.0.1");
  meeting.port = std::stoi(variable("MASTER_PORT", "29500"));
  const auto store = laconic::meet(meeting);
  auto transport = laconic::make_gloo(meeting, *store);
  if (!options.shape.empty())
    transport = make_shaped(std::move(transport), laconic::parse_shape(options.shape));
  return Bench(*transport, options).run();
}

}  // namespace

int main(int count, char** words) {
  try {
    const Options options = parse(count, words);
    const auto result = std::getenv("RANK") != nullptr ? with_gloo(options) : with_threads(options);
    if (result.is_null()) return 0;
    fmt::print("{}\n", result.dump());
    if (!options.json.empty()) std::ofstream(options.json) << result.dump(2) << '\n';
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "collective_bench: {}\n", error.what());
    return 1;
  }
}
