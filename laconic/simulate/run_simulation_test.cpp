#include "laconic/simulate/run_simulation.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "laconic/base/index.hpp"
#include "laconic/engine/segment.hpp"
#include "laconic/schedule/lower.hpp"
#include "laconic/simulate/collective_program.hpp"
#include "laconic/simulate/held_model.hpp"
#include "laconic/simulate/run_picture.hpp"
#include "laconic/simulate/test_subject.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {
namespace {

// Seconds that an exchange among all of them takes.
double exchange_seconds(const Hosts& hosts, const CollectiveSpec& spec, Folding folding) {
  const std::vector<Seat> seats = seats_of(hosts);
  const int ranks = static_cast<int>(seats.size());
  ProgramBuilder builder(hosts, seats, classes_of({.dp = ranks}, hosts, seats, folding),
                         RunPrecision::float32);
  const ExchangeStrands strands = add_collective(builder, spec, 0);
  for (const auto& [rank, strand] : strands) {
    const int main = builder.add_main(rank);
    builder.start(main, strand);
    builder.join(main, strand);
  }
  return simulate(builder.program()).seconds;
}

CollectiveSpec exchange_of(CollectiveKind kind, Algorithm algorithm, int members,
                           std::uint64_t chunk) {
  CollectiveSpec spec{.traffic = Traffic::dp_gradient, .kind = kind, .algorithm = algorithm};
  spec.group.resize(index(members));
  std::iota(spec.group.begin(), spec.group.end(), 0);
  for (int i = 0; i <= chunks_of(kind, algorithm, members); ++i)
    spec.offsets.push_back(static_cast<std::uint64_t>(i) * chunk);
  return spec;
}

double message_wire_bytes(std::uint64_t elements) {
  const FrameHeader header{.codec = Raw{},
                           .tensor = {Dtype::f32, {static_cast<std::int64_t>(elements)}}};
  return static_cast<double>(wire_bytes(max_frame_bytes(header), std::size_t{256} << 10));
}

TEST(CollectiveProgram, TakesWhatItsClosedFormSays) {
  constexpr double kRate = 1e6, kLatency = 0.003;
  constexpr std::uint64_t kChunk = 4096;
  for (const int n : {2, 3, 4, 8}) {
    const Hosts hosts = bare_hosts(n, kRate, kLatency);
    const double message = message_wire_bytes(kChunk) / kRate;
    struct Case {
      CollectiveKind kind;
      Algorithm algorithm;
      double seconds;
    };
    std::vector<Case> cases = {
        {CollectiveKind::all_reduce, Algorithm::direct, 2 * ((n - 1) * message + kLatency)},
        {CollectiveKind::all_reduce, Algorithm::gathered, (n - 1) * message + kLatency},
        {CollectiveKind::all_gather, Algorithm::direct, (n - 1) * message + kLatency},
        {CollectiveKind::reduce_scatter, Algorithm::direct, (n - 1) * message + kLatency},
        {CollectiveKind::all_reduce, Algorithm::ring, 2 * (n - 1) * (message + kLatency)},
        {CollectiveKind::all_gather, Algorithm::ring, (n - 1) * (message + kLatency)}};
    if (n != 3)
      cases.push_back({CollectiveKind::all_reduce, Algorithm::doubling,
                       std::bit_width(static_cast<unsigned>(n - 1)) * (message + kLatency)});
    for (const Case& c : cases)
      for (const Folding folding : {Folding::never, Folding::always})
        EXPECT_NEAR(exchange_seconds(hosts, exchange_of(c.kind, c.algorithm, n, kChunk), folding) /
                        c.seconds,
                    1, kRounding)
            << name_of(c.kind) << " by " << name_of(c.algorithm) << ", " << n << " members, "
            << (folding == Folding::never ? "each by itself" : "as one");
  }
}

TEST(RunSimulation, PipelinesOfEqualStagesTakeWhatTheirClosedFormSays) {
  for (const char* schedule : {"gpipe", "1f1b"})
    for (const int microbatches : {1, 3, 8}) {
      RunConfig config = lab_config(4, 1);
      config.pipeline.schedule = schedule;
      config.pipeline.split = "2,2,2,2";
      config.train.batch = 4 * microbatches;
      const Subject subject(config, bare_hosts(4, 0));  // no limit
      std::vector<BlockTimes> blocks(10, {0.25, 0.5});
      blocks.front() = blocks.back() = {};
      EXPECT_NEAR(subject.run(Folding::never, blocks).step_seconds, (microbatches + 3) * 1.5,
                  kRounding)
          << schedule << ", " << microbatches << " microbatches";
    }
}

// Where computing takes no time, everything that a grid moves is waited for, one after the other.
TEST(RunSimulation, AGridThatComputesInNoTimeTakesWhatItMoves) {
  for (const int ranks : {2, 4}) {
    RunConfig config = lab_config(1, 1);
    config.model.layers = 2;
    config.train.batch = 4;
    config.mesh.tp = fmt::format("1,{},1", ranks);
    config.tensor.method = TensorMethod::one_d;
    const Subject subject(config, bare_hosts(ranks, 1e6));
    for (const Folding folding : {Folding::never, Folding::always}) {
      const RunSimulation run = subject.run(folding);
      double bytes = 0;
      for (const Traffic traffic :
           {Traffic::tp_activation, Traffic::tp_gradient, Traffic::tp_weight})
        bytes += static_cast<double>(run.sent.at(static_cast<std::size_t>(traffic)).wire_bytes);
      const Timing timing =
          timing_of(run, lowered(subject.decisions.schedule), mesh_of(subject.config));
      EXPECT_NEAR(timing.compute_end[0] / (bytes / ranks / 1e6), 1, kRounding) << ranks;
    }
  }
}

// A step of a small GPT on a grid of two ranks along each axis, from its shapes alone. Every rank
// has a p-th of all matrices, and sends as much as it gets.
class GridByHand {
 public:
  static constexpr std::int64_t kSamples = 16, kTokens = 16, kWidth = 64, kVocabulary = 96,
                                kLayers = 2;
  // 0: no time. `is_cube`: 3d on 2 x 2 x 2; else 2d or 2.5d, where nothing leaves but inputs.
  GridByHand(int ranks, bool is_cube, double bytes_per_second, double multiply_adds_per_second)
      : p_(ranks),
        is_cube_(is_cube),
        bytes_per_second_(bytes_per_second),
        multiply_adds_per_second_(multiply_adds_per_second) {}

  double seconds() const {
    const double positions = kTokens * h_;
    const double embedding =
        2 * (vectors(positions) + sent(kVocabulary * h_, weight_peers()) + sent(r_ * h_));
    const double attention = 3 * computed(r_ * kTokens * h_);  // backward twice
    const double layer = map(h_, 3 * h_) + attention + map(h_, h_) + map(h_, 4 * h_) +
                         map(4 * h_, h_) + 2 * norm() +
                         2 * (is_cube_ ? vectors(6 * h_) + vectors(7 * h_) : vectors(13 * h_));
    const double three_numbers_a_row = sent(3 * 2 * r_);
    const double head = 2 * vectors(2 * h_) + norm() + map(h_, kVocabulary) + three_numbers_a_row;
    return embedding + kLayers * layer + head;
  }

 private:
  // A message of a p-th of so many numbers to each of so many peers.
  double sent(double numbers, double peers = 1) const {
    return peers * message_wire_bytes(static_cast<std::uint64_t>(numbers / p_)) / bytes_per_second_;
  }
  double computed(double multiply_adds) const {
    return multiply_adds_per_second_ > 0 ? multiply_adds / p_ / multiply_adds_per_second_ : 0;
  }
  // Of the ranks that have other parts of a weight, or of a vector, but the same features.
  double weight_peers() const { return is_cube_ ? 1 : p_ / 2 - 1; }
  double vectors(double numbers) const { return sent(numbers, p_ / 2 - 1); }
  // Forward a sum of one number a row, twice; back one of two. A rank has rows 2 r / p, and sends
  // half of them, once up and once down.
  double norm() const { return 2 * 2 * sent(r_) + 2 * sent(2 * r_); }
  // Forward weight and input come together. Back the gradient of the output, weight and input come;
  // then the weight's gradient leaves while the input's is computed, which leaves last.
  double map(double inputs, double outputs) const {
    const double weight = sent(inputs * outputs, weight_peers()), in = sent(r_ * inputs),
                 out = is_cube_ ? sent(r_ * outputs) : 0, product = computed(r_ * inputs * outputs);
    const double forward = weight + in + product + out;
    return forward + out + weight + in + product + std::max(product, weight) + in;
  }

  const double p_;
  const bool is_cube_;
  const double bytes_per_second_, multiply_adds_per_second_;
  const double r_ = kSamples * kTokens, h_ = kWidth;
};

TEST(RunSimulation, GridsOfTwoAndThreeDimensionsTakeWhatTheirClosedFormSays) {
  struct Grid {
    TensorMethod method;
    const char* tp;
    int ranks;
  };
  constexpr double kRate = 1e6;
  for (const Grid& grid : {Grid{TensorMethod::two_d, "2,2,1", 4},
                           {TensorMethod::two_and_half_d, "2,2,2", 8},
                           {TensorMethod::three_d, "2,2,2", 8}})
    // Products take no time, less than their weights' gradients on the way, and more.
    for (const double multiply_adds : {0.0, 3e8, 3e7})
      for (const Folding folding : {Folding::never, Folding::always}) {
        RunConfig config = lab_config(1, 1);
        config.model.layers = GridByHand::kLayers;
        config.model.width = GridByHand::kWidth;
        config.model.context = GridByHand::kTokens;
        config.model.vocabulary = GridByHand::kVocabulary;
        config.train.batch = config.train.microbatch = GridByHand::kSamples;
        config.mesh.tp = grid.tp;
        config.tensor.method = grid.method;
        config.tensor.prefetch = multiply_adds == 0;  // then there is nothing to hide behind
        const bool is_cube = grid.method == TensorMethod::three_d;
        if (is_cube) config.tensor.table = TableChoice::split;
        Hosts hosts = bare_hosts(grid.ranks, kRate);
        hosts.groups[0].device.multiply_adds_per_second[0] = multiply_adds;
        const Subject subject(config, hosts);
        const Timing timing = timing_of(subject.run(folding), lowered(subject.decisions.schedule),
                                        mesh_of(subject.config));
        const GridByHand expected(grid.ranks, is_cube, kRate, multiply_adds);
        EXPECT_NEAR(timing.compute_end[0] / expected.seconds(), 1, kRounding)
            << name_of(grid.method) << ", " << multiply_adds << " multiply-adds per second, "
            << (folding == Folding::never ? "each by itself" : "as one");
      }
}

// A sum that is used a step late is under way while the next step computes: the step is shorter by
// what the sum took behind the last backward, and sends as much.
TEST(RunSimulation, ATableThatIsLateTravelsBesideAStep) {
  const auto run_of = [](std::int64_t late) {
    RunConfig config = lab_config(2, 1);
    config.embedding_tied.late = late;
    const Subject subject(config, bare_hosts(2, 2e6));
    return subject.run(Folding::never, {subject.spec.blocks.size(), BlockTimes{0.25, 0.5}});
  };
  const RunSimulation at_once = run_of(0), late = run_of(1);
  const auto tied = index(static_cast<int>(Traffic::embedding_tied));
  EXPECT_EQ(at_once.sent[tied].wire_bytes, late.sent[tied].wire_bytes);
  const double table_seconds = static_cast<double>(at_once.sent[tied].wire_bytes) / 2 / 2e6;
  EXPECT_NEAR(at_once.step_seconds - late.step_seconds, table_seconds, 0.1 * table_seconds);
}

// "auto" is what a run would take at the hosts' rates: on slow links all forwards first, in small
// microbatches; where ranks share cores and small microbatches cost more, large ones.
TEST(RunSimulation, AnOrderThatIsToBeChosenIsChosenByTheHosts) {
  RunConfig config = lab_config(4, 1);
  config.pipeline.schedule = kScheduleAuto;
  Hosts hosts = bare_hosts(4, 1e5);
  hosts.groups[0].device.multiply_adds_per_second[0] = 4e10;
  const Subject slow(config, hosts);
  EXPECT_EQ(slow.decisions.kind, "gpipe");
  EXPECT_EQ(slow.config.microbatch_size(), slow.decisions.microbatch);
  EXPECT_EQ(slow.decisions.schedule.shape.microbatches, slow.config.microbatches());
  hosts.groups[0].card.bits_per_second = 1e12;
  hosts.groups[0].device.is_gpu = false;
  hosts.groups[0].device.pass_samples.fill(4);
  hosts.groups[0].cores = 1;
  const Subject shared(config, hosts);
  EXPECT_EQ(shared.decisions.microbatch, config.train.microbatch);
  config.pipeline.schedule = shared.decisions.kind;
  EXPECT_EQ(shared.seconds(), Subject(config, hosts).seconds()) << "as if it had been asked for";
}

TEST(RunSimulation, APassCostsWhatItDoesInThePrecisionOfTheRun) {
  RunConfig config = lab_config(1, 1);
  Hosts hosts = bare_hosts(1, 0);
  hosts.groups[0].device.multiply_adds_per_second.fill(40e9);
  hosts.groups[0].device.pass_samples[static_cast<std::size_t>(RunPrecision::float64)] = 4;
  const double single = Subject(config, hosts).seconds();
  config.run.precision = RunPrecision::float64;
  EXPECT_NEAR(Subject(config, hosts).seconds() / single, 2, kRounding) << "4 and 4 samples";
}

// Of 1d, which has the whole stream on every rank, as long as on one rank.
TEST(RunSimulation, NormsThatHaveARateTakeItWithAGridAndWithout) {
  RunConfig config = lab_config(1, 1);
  config.train.batch = 4;
  Hosts hosts = bare_hosts(4, 0);
  hosts.groups[0].device.elements_per_second = 1e6;
  const Subject alone(config, hosts);
  double elements = 0;
  for (std::size_t block = 0; block < alone.spec.blocks.size(); ++block)
    elements += grid_normed_elements(alone.spec, {}, block, 4);
  ASSERT_GT(elements, 0);
  EXPECT_NEAR(alone.seconds() / (elements / 1e6), 1, kRounding);
  for (const auto& [method, parts] :
       {std::pair{TensorMethod::one_d, 1}, {TensorMethod::one_d_sequence, 4}}) {
    config.mesh.tp = "1,4,1";
    config.tensor.method = method;
    EXPECT_NEAR(Subject(config, hosts).seconds() / (elements / parts / 1e6), 1, kRounding);
  }
}

// Messages and bytes of a step, by the meters of runs in docs/results/2026-11-15/raw.
TEST(RunSimulation, BytesOfEveryClassAreThoseThatRunsHaveCounted) {
  using enum Traffic;
  struct Counted {
    const char* trial;
    std::function<void(RunConfig&)> set;
    std::vector<std::pair<Traffic, ClassBytes>> sent;
  };
  const std::vector<Counted> table = {{"bandwidth fp32",
                                       [](RunConfig&) {},
                                       {{pp_activation, {24, 12'585'504}},
                                        {pp_gradient, {24, 12'585'504}},
                                        {embedding_tied, {20, 4'195'664}}}},
                                      {"bandwidth DirectQ, 3 and 6 bits",
                                       [](RunConfig& c) {
                                         c.pp_activation.codec = "quantise:bits=3,block=64";
                                         c.pp_gradient.codec = "quantise:bits=6,block=64";
                                         c.embedding_tied.codec = "quantise:bits=8,block=64";
                                       },
                                       {{pp_activation, {24, 1'378'320}},
                                        {pp_gradient, {24, 2'557'968}},
                                        {embedding_tied, {20, 1'115'672}}}},
                                      {"honesty interleaved",
                                       [](RunConfig& c) {
                                         c.pipeline.schedule = "interleaved";
                                         c.pipeline.chunks = 2;
                                       },
                                       {{pp_activation, {56, 29'366'176}},
                                        {pp_gradient, {56, 29'366'176}},
                                        {embedding_tied, {20, 4'195'664}}}},
                                      {"end-to-end nothing",
                                       [](RunConfig& c) {
                                         c.mesh.dp = 2;
                                         c.train.batch = 64;
                                       },
                                       {{dp_gradient, {232, 50'826'656}},
                                        {pp_activation, {48, 25'171'008}},
                                        {pp_gradient, {48, 25'171'008}},
                                        {embedding_tied, {72, 12'587'808}}}},
                                      {"end-to-end gradients only",
                                       [](RunConfig& c) {
                                         c.mesh.dp = 2;
                                         c.train.batch = 64;
                                         c.dp_gradient.codec = "quantise:bits=4,block=64";
                                       },
                                       {{dp_gradient, {232, 7'163'376}}}},
                                      {"optimus-cc CB",
                                       [](RunConfig& c) {
                                         c.mesh.dp = 2;
                                         c.train.batch = 16;
                                         c.train.microbatch = 1;
                                         c.embedding_tied.fused = false;
                                         c.pp_gradient.codec = "low_rank:rank=16";
                                         c.pp_gradient.when = When::epilogue;
                                       },
                                       {{dp_gradient, {264, 59'217'440}},
                                        {pp_activation, {48, 6'295'104}},
                                        {pp_gradient, {48, 5'017'212}},
                                        {embedding_tied, {40, 8'391'328}}}}};
  for (const Counted& counted : table) {
    RunConfig config = lab_config(4, 1);
    counted.set(config);
    const Subject subject(config, bare_hosts(8, 1e6));
    for (const auto& [traffic, sent] : counted.sent) {
      EXPECT_EQ(subject.sent(traffic).wire_bytes, sent.wire_bytes)
          << counted.trial << ", " << name_of(traffic);
      EXPECT_EQ(subject.sent(traffic).messages, sent.messages)
          << counted.trial << ", " << name_of(traffic);
    }
  }
}

// A frozen anchor is as large as the embedding, and is in no sum; nor is a frozen basis.
TEST(RunSimulation, WhatIsFrozenIsInNoSumAndNoUpdate) {
  for (const int pp : {1, 2}) {
    RunConfig drawn = lab_config(pp, 2);
    drawn.model.project_after = "4";
    drawn.model.project_rank = 64;
    RunConfig frozen = drawn;
    frozen.model.project_basis = BasisKind::pca;
    frozen.model.project_anchor = AnchorKind::initial;
    const auto sent = [](const RunConfig& config, Traffic traffic) {
      return Subject(config, bare_hosts(4, 2e6)).sent(traffic).wire_bytes;
    };
    for (const Traffic traffic : {Traffic::dp_gradient, Traffic::embedding_tied})
      EXPECT_EQ(sent(frozen, traffic), sent(drawn, traffic)) << name_of(traffic) << ", pp " << pp;
    const Subject with(frozen, bare_hosts(4, 2e6)), without(drawn, bare_hosts(4, 2e6));
    for (Rank rank = 0; rank < 2 * pp; ++rank)
      EXPECT_EQ(HeldModel(with.request(), rank, true).elements(),
                HeldModel(without.request(), rank, true).elements());
  }
}

// Of three boundaries the first is whole, and the others are encoded.
TEST(RunSimulation, BoundariesThatAreNotChosenAreWhole) {
  const auto sent = [](const char* codec, const char* boundaries) {
    RunConfig config = lab_config(4, 1);
    config.pp_activation.codec = config.pp_gradient.codec = codec;
    config.pp_activation.boundaries = boundaries;
    const Subject subject(config, bare_hosts(4, 1e6));
    return std::pair{subject.sent(Traffic::pp_activation).wire_bytes,
                     subject.sent(Traffic::pp_gradient).wire_bytes};
  };
  const auto raw = sent("raw", "all"), encoded = sent("quantise:bits=3,block=64", "all");
  EXPECT_EQ(sent("quantise:bits=3,block=64", "last half"),
            std::pair((raw.first + 2 * encoded.first) / 3, encoded.second));
  EXPECT_EQ(sent("quantise:bits=3,block=64", "2").first, (2 * raw.first + encoded.first) / 3);
}

TEST(RunSimulation, WhatGoesOutComesInAndTwiceIsTheSame) {
  for (const Subject& subject : various(2e6, 1e-4)) {
    const RunSimulation run = subject.run();
    double out = 0, in = 0, all = 0;
    for (std::size_t l = 0; l < run.times.link_bytes.size(); ++l)
      (run.program.network.names[l].ends_with("out") ? out : in) += run.times.link_bytes[l];
    for (const ProgramMessage& message : run.program.messages) all += message.bytes;
    EXPECT_NEAR(out / all, 1, kRounding);
    EXPECT_NEAR(in / all, 1, kRounding);
    for (std::size_t rank = 0; rank < run.times.ranks.size(); ++rank) {
      const RankSpent& spent = run.times.ranks[rank];
      double sum = spent.bubble + spent.idle;
      for (const double part : spent.work) sum += part;
      for (const double part : spent.exposed) sum += part;
      EXPECT_NEAR(sum / run.times.seconds, 1, kRounding) << "rank " << rank;
    }
    const RunSimulation again = subject.run();
    EXPECT_EQ(again.step_seconds, run.step_seconds);
    EXPECT_EQ(again.times.link_bytes, run.times.link_bytes);
  }
}

TEST(RunSimulation, FasterLinksAndShorterWaysNeverTakeLonger) {
  const std::vector<Subject> base = various(2e6, 1e-3), faster = various(4e6, 1e-3),
                             shorter = various(2e6, 1e-4);
  for (std::size_t i = 0; i < base.size(); ++i) {
    EXPECT_LE(faster[i].seconds(), base[i].seconds() * (1 + kRounding)) << i;
    EXPECT_LE(shorter[i].seconds(), base[i].seconds() * (1 + kRounding)) << i;
  }
}

// What travels is the same; what is computed meanwhile is a whole step instead of a backward.
TEST(RunSimulation, SumsThatAreLateHideBehindAWholeStep) {
  const auto subject = [](std::int64_t late) {
    RunConfig config = lab_config(1, 4);
    config.dp_gradient.late = late;
    Hosts hosts = bare_hosts(4, 20e6);
    hosts.groups[0].device.multiply_adds_per_second[0] = 40e9;
    return Subject(config, hosts);
  };
  const RunSimulation own = subject(0).run(), late = subject(1).run();
  const auto exposed = [](const RunSimulation& run) {
    return mean_spent(run).exposed[index(static_cast<int>(Traffic::dp_gradient))];
  };
  EXPECT_LT(late.step_seconds, 0.9 * own.step_seconds);
  EXPECT_LT(exposed(late), 0.1 * exposed(own));
  EXPECT_EQ(late.sent[index(static_cast<int>(Traffic::dp_gradient))].wire_bytes,
            own.sent[index(static_cast<int>(Traffic::dp_gradient))].wire_bytes);
}

TEST(RunSimulation, WhatCannotBeSimulatedIsRefusedWithAllReasons) {
  RunConfig config = lab_config(4, 4);
  config.dp_gradient.algorithm = AllReduceKind::native;
  const Subject subject(config, bare_hosts(4, 1e6));
  Hosts hosts = subject.hosts;
  hosts.groups[0].device.multiply_adds_per_second[0] = 1e9;
  const Problems problems = check(SimulationRequest{.config = config,
                                                    .spec = subject.spec,
                                                    .grid = subject.grid,
                                                    .decisions = subject.decisions,
                                                    .hosts = hosts,
                                                    .blocks = {{1, 2}},
                                                    .rows_read = -1});
  const std::string text = to_text(problems);
  for (const char* part : {"asks for 16 ranks, and the hosts have 4", "-1 is below 0",
                           "\"native\" is the transport's own", "1 times for 10 blocks"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

// A table of 33 MB has 128 / dp lanes and more of its own.
constexpr double kAround = 78;  // bytes of the frame and the segment of a message in 4 bits

TEST(RunSimulation, FewLanesTakeAsLongAsMany) {
  for (const auto& [pp, dp] : {std::pair{1, 4}, {1, 8}, {2, 2}, {4, 4}})
    for (const double rate : {2e6, 1e8})
      for (const double latency : {1e-4, 0.02})
        for (const char* codec : {"raw", "quantise:bits=4"}) {
          RunConfig config = lab_config(pp, dp);
          config.model.vocabulary = 32768;
          config.dp_gradient.codec = codec;
          Hosts hosts = bare_hosts(16, rate, latency);
          hosts.groups[0].device.multiply_adds_per_second[0] = 40e9;
          const Subject subject(config, hosts);
          SCOPED_TRACE(
              fmt::format("pp {} x dp {}, {} B/s, {} s, {}", pp, dp, rate, latency, codec));
          const auto run = [&](ProgramBounds bounds) {
            return simulate({.config = subject.config,
                             .spec = subject.spec,
                             .grid = subject.grid,
                             .decisions = subject.decisions,
                             .hosts = subject.hosts,
                             .bounds = bounds});
          };
          const RunSimulation many = run({}), few = run({.lanes = 16});
          EXPECT_NEAR(few.step_seconds / many.step_seconds, 1, 0.02);
          // Bytes are the same but for the frame and the segment around each message that there is
          // more.
          for (std::size_t t = 0; t < many.sent.size(); ++t) {
            const double spared = static_cast<double>(many.sent.at(t).wire_bytes) -
                                  static_cast<double>(few.sent.at(t).wire_bytes);
            const double around = kAround * (static_cast<double>(many.sent.at(t).messages) -
                                             static_cast<double>(few.sent.at(t).messages));
            EXPECT_NEAR(spared, around, 0.001 * static_cast<double>(many.sent.at(t).wire_bytes));
          }
          const std::size_t messages = few.program.messages.size();
          if (pp == 1) {
            EXPECT_LT(messages, many.program.messages.size());
          }
          EXPECT_EQ(run({.messages = messages, .lanes = 16}).step_seconds, few.step_seconds);
          EXPECT_THROW(run({.messages = messages - 1, .lanes = 16}), ProgramTooLarge);
        }
}

TEST(RunPicture, ShowsThePipelineOfTheFirstReplica) {
  const Subject subject(lab_config(4, 2), bare_hosts(8, 1e6));
  const RunSimulation run = subject.run();
  const Schedule whole = lowered(subject.decisions.schedule);
  const Timing timing = timing_of(run, whole, mesh_of(subject.config));
  EXPECT_EQ(timing.compute.size(), 4U * 2 * 8);
  EXPECT_EQ(timing.messages.size(), 2U * 3 * 8);
  EXPECT_LE(timing.makespan, run.step_seconds * (1 + kRounding));
  EXPECT_GT(timing.makespan, 0.9 * run.step_seconds);
  for (const Span& span : timing.messages) EXPECT_LT(span.begin, span.end);
  const RankSpent mean = mean_spent(run);
  EXPECT_GT(mean.exposed[index(static_cast<int>(Traffic::dp_gradient))], 0);
}

}  // namespace
}  // namespace laconic
