// What a trace shows of communication, beside what the meter has counted.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "laconic/file/json.hpp"
#include "tests/equivalence/pipeline_ranks.hpp"

namespace laconic {
namespace {

struct Span {
  std::string name;
  double begin = 0, end = 0;  // seconds
  nlohmann::json args;
};

// A trace file, taken apart.
struct Drawn {
  std::map<std::string, std::vector<Span>> by_category;
  std::map<int, std::vector<Span>> by_thread;
  std::map<int, std::string> threads;
  std::multiset<std::string> arrows_out, arrows_in;  // ids
};

Drawn read_trace(const std::string& path) {
  Drawn drawn;
  const nlohmann::json file = read_json(path);
  EXPECT_EQ(file["otherData"]["dropped_events"], 0);
  for (const auto& event : file["traceEvents"]) {
    const std::string phase = event["ph"];
    if (event["name"] == "thread_name") drawn.threads[event["tid"]] = event["args"]["name"];
    if (phase == "s") drawn.arrows_out.insert(event["id"].get<std::string>());
    if (phase == "f") drawn.arrows_in.insert(event["id"].get<std::string>());
    if (phase != "X") continue;
    const double begin = event["ts"].get<double>() / 1e6, dur = event["dur"].get<double>() / 1e6;
    const Span span{event["name"], begin, begin + dur,
                    event.contains("args") ? event["args"] : nlohmann::json()};
    drawn.by_category[event["cat"]].push_back(span);
    drawn.by_thread[event["tid"]].push_back(span);
  }
  return drawn;
}

double sum_of(const std::vector<Span>& spans) {
  double sum = 0;
  for (const Span& span : spans) sum += span.end - span.begin;
  return sum;
}

// Seconds in which there is at least one.
double union_of(std::vector<Span> spans) {
  std::ranges::sort(spans, {}, &Span::begin);
  double sum = 0, until = 0;
  for (const Span& span : spans) {
    sum += std::max(0.0, span.end - std::max(span.begin, until));
    until = std::max(until, span.end);
  }
  return sum;
}

std::uint64_t total(const std::vector<Span>& spans, const char* field) {
  std::uint64_t sum = 0;
  for (const Span& span : spans) sum += span.args.value(field, std::uint64_t{0});
  return sum;
}

Count received(const MeterReading& reading, Traffic traffic) {
  Count sum;
  for (const auto& [key, count] : reading.received)
    if (key.first == traffic) sum += count;
  return sum;
}

Times times_of(const MeterReading& reading, Traffic traffic) {
  const auto found = reading.times.find(traffic);
  return found == reading.times.end() ? Times() : found->second;
}

// On every row spans nest, or come one after the other.
void expect_rows(const Drawn& drawn) {
  constexpr double kRounding = 2e-9;
  for (const auto& [thread, spans] : drawn.by_thread) {
    std::vector<Span> sorted = spans;
    std::ranges::sort(sorted, {}, [](const Span& s) { return std::pair(s.begin, -s.end); });
    std::vector<double> open;
    for (const Span& span : sorted) {
      while (!open.empty() && open.back() <= span.begin + kRounding) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(span.end, open.back() + kRounding) << drawn.threads.at(thread) << span.name;
      }
      open.push_back(span.end);
    }
  }
}

class TraceRun : public PipelineParallel {
 protected:
  // What each rank's engine has counted.
  static std::vector<MeterReading> run_metered(const RunConfig& c) {
    std::vector<MeterReading> readings(static_cast<std::size_t>(size(mesh_of(c))));
    run_ranks(make_in_process(size(mesh_of(c))), [&](Transport& transport) {
      Engine engine(transport, {.deadline = std::chrono::seconds(20)});
      ProgressThread progress_thread(engine);
      World world(mesh_of(c), progress_thread);
      train({.config = c, .world = &world});
      readings[static_cast<std::size_t>(transport.rank())] = engine.meter().read();
      engine.flush();
      world.gather({});
      engine.flush();
    });
    return readings;
  }
  static std::string file_of(const RunConfig& c, std::size_t rank) {
    return c.run.folder + (rank == 0 ? "/trace.json" : fmt::format("/trace-rank-{}.json", rank));
  }
};

TEST_F(TraceRun, EveryClassIsThereWithItsBytesAndItsTime) {
  RunConfig c = config("traced", 2, 2);
  set(c, {"report.trace=true", "pp.activation.codec=quantise:bits=4", "pp.activation.memory=delta",
          "pp.gradient.codec=quantise:bits=8", "dp.gradient.codec=quantise:bits=4",
          "dp.gradient.algorithm=direct"});
  const std::vector<MeterReading> readings = run_metered(c);
  for (std::size_t rank = 0; rank < readings.size(); ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    Drawn drawn = read_trace(file_of(c, rank));
    expect_rows(drawn);
    std::set<std::string> seen;
    for (int number = 0; number < kTrafficClasses; ++number) {
      const auto traffic = static_cast<Traffic>(number);
      const std::string name(name_of(traffic));
      SCOPED_TRACE(name);
      const auto spans = [&](const char* kind) { return drawn.by_category[name + kind]; };
      const Times times = times_of(readings[rank], traffic);
      const Count out = sent(readings[rank], traffic), in = received(readings[rank], traffic);
      EXPECT_EQ(out.messages > 0, !spans(" sends").empty());
      EXPECT_EQ(in.messages > 0, !spans(" receives").empty());
      if (out.messages + in.messages > 0) seen.insert(name);
      if (traffic == Traffic::control) {  // there was some before there was a trace
        EXPECT_FALSE(spans(" waits").empty());
        continue;
      }
      EXPECT_EQ(times.exposed > 0, !spans(" waits").empty());
      EXPECT_EQ(spans(" sends").size(), out.messages);
      EXPECT_EQ(total(spans(" sends"), "raw_bytes"), out.raw_bytes);
      EXPECT_EQ(total(spans(" sends"), "wire_bytes"), out.wire_bytes);
      EXPECT_EQ(spans(" receives").size(), in.messages);
      EXPECT_EQ(total(spans(" receives"), "wire_bytes"), in.wire_bytes);
      EXPECT_NEAR(sum_of(spans(" waits")), times.exposed, 1e-4);
      EXPECT_NEAR(sum_of(spans(" codec")), times.codec, 1e-4);
      const bool is_link = traffic == Traffic::pp_activation || traffic == Traffic::pp_gradient;
      if (is_link) {
        EXPECT_TRUE(spans("").empty());
      } else {
        EXPECT_EQ(total(spans(""), "raw_bytes"), out.raw_bytes);
        EXPECT_EQ(total(spans(""), "wire_bytes"), out.wire_bytes);
      }
      const double active = union_of(spans(is_link ? " receives" : ""));
      EXPECT_NEAR(active, times.active, 0.05 * times.active + 5e-3);
    }
    EXPECT_EQ(seen, (std::set<std::string>{"control", "dp.gradient", "embedding.tied",
                                           "pp.activation", "pp.gradient"}));
  }
}

TEST_F(TraceRun, WaitsSayWhatForAndFollowFromIt) {
  RunConfig c = config("traced", 2, 2);
  set(c, {"report.trace=true"});
  run_metered(c);
  Drawn first = read_trace(file_of(c, 0)), last = read_trace(file_of(c, 2));
  for (const auto& [drawn, category, name, peer] :
       {std::tuple{&first, "pp.gradient waits", "wait for pp.gradient 0 from rank 2", 2},
        {&last, "pp.activation waits", "wait for pp.activation 0 from rank 0", 0}}) {
    std::set<std::string> received;
    for (const auto& [key, spans] : drawn->by_category)
      if (key.ends_with(" receives"))
        for (const Span& span : spans) received.insert(span.args["what"].get<std::string>());
    std::size_t in_steps = 0;
    for (const Span& wait : drawn->by_category[category]) {
      EXPECT_EQ(wait.args["peers"], nlohmann::json::array({peer}));
      EXPECT_TRUE(received.contains(wait.args["what"].get<std::string>())) << wait.args;
      if (wait.name != name) continue;  // of an evaluation
      ++in_steps;
      EXPECT_GE(wait.args["step"], 1);
      EXPECT_LE(wait.args["step"], c.train.steps);
    }
    EXPECT_EQ(in_steps, static_cast<std::size_t>(c.train.steps * c.microbatches()));
    EXPECT_FALSE(drawn->arrows_in.empty());
    for (const std::string& id : drawn->arrows_in)
      EXPECT_TRUE(drawn->arrows_out.contains(id)) << id;
    for (const Span& wait : drawn->by_category["dp.gradient waits"])
      EXPECT_EQ(wait.name, "wait for operations of dp.gradient");
  }
}

// Collectives of a grid are named by class and axes, and what the meter counts by axes makes up the
// class.
TEST_F(TraceRun, CollectivesOfAGridSayAlongWhichAxes) {
  RunConfig c = config("traced", 1);
  set(c, {"report.trace=true", "mesh.tp=2,2,1", "model.layers=1", "train.batch=8",
          "train.microbatch=4", "train.steps=1", "evaluate.samples=8"});
  const std::vector<MeterReading> readings = run_metered(c);
  const Drawn drawn = read_trace(file_of(c, 0));
  std::set<std::string> names;
  for (const char* category : {"tp.activation", "tp.gradient", "tp.weight"})
    for (const Span& span : drawn.by_category.at(category)) names.insert(span.name);
  for (const char* name : {"all_gather of tp.weight tp0", "reduce_scatter of tp.weight tp0",
                           "all_gather of tp.activation tp1", "reduce_scatter of tp.gradient tp1"})
    EXPECT_TRUE(names.contains(name)) << name;
  std::map<std::string, double> waited;
  for (const Span& span : drawn.by_category.at("tp.weight waits"))
    waited[span.name] += span.end - span.begin;
  for (const MeterReading& reading : readings) {
    std::map<Traffic, Count> along;
    for (const auto& [key, part] : reading.by_axes) {
      along[key.first] += part.sent;
      EXPECT_LE(part.times.exposed, reading.times.at(key.first).exposed + 1e-9);
    }
    EXPECT_EQ(along.size(), 3U);
    for (const auto& [traffic, count] : along) EXPECT_EQ(count, sent(reading, traffic));
  }
  const AxesReading& first = readings[0].by_axes.at({Traffic::tp_weight, 1});
  EXPECT_NEAR(waited["wait for operations of tp.weight tp0"], first.times.exposed, 1e-4);
}

TEST_F(TraceRun, TrainsTheSameWithAndWithoutATrace) {
  RunConfig with = config("with", 2, 2), without = config("without", 2, 2);
  set(with, {"report.trace=true"});
  EXPECT_EQ(model_bytes(run(with).checkpoint), model_bytes(run(without).checkpoint));
  EXPECT_FALSE(std::filesystem::exists(file_of(without, 0)));
}

}  // namespace
}  // namespace laconic
