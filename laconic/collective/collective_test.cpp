#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <thread>

#include "laconic/base/error.hpp"
#include "laconic/collective/test_collective.hpp"
#include "laconic/wire/frame.hpp"

namespace laconic {

namespace {

// --- what raw collectives should give, by their definitions

// Sums the elements of a slice; the others are anything.
template <class T>
std::vector<T> sum_in_order(const Buffers<T>& in, const std::vector<int>& order, Slice slice) {
  std::vector<T> sum = in[static_cast<std::size_t>(order[0])];
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::vector<T>& addend = in[static_cast<std::size_t>(order[i])];
    for (std::uint64_t e = slice.offset; e < slice.offset + slice.elements; ++e)
      sum[e] += addend[e];
  }
  return sum;
}

template <class T>
std::vector<T> sum_of_pair(const std::vector<T>& a, const std::vector<T>& b) {
  return sum_in_order<T>({a, b}, {0, 1}, {0, a.size()});
}

template <class T>
std::vector<T> sum_by_doubling(const Buffers<T>& in) {
  const std::size_t seats = std::bit_floor(in.size()), extra = in.size() - seats;
  Buffers<T> level;
  for (std::size_t m = 0; m < in.size(); ++m) {
    const bool is_pair = m < 2 * extra;
    level.push_back(is_pair ? sum_of_pair(in[m], in[m + 1]) : in[m]);
    m += is_pair ? 1 : 0;
  }
  while (level.size() > 1) {
    Buffers<T> next;
    for (std::size_t i = 0; i < level.size(); i += 2)
      next.push_back(sum_of_pair(level[i], level[i + 1]));
    level = next;
  }
  return level[0];
}

std::vector<int> order_of(Algorithm algorithm, int members, int chunk) {
  std::vector<int> order(static_cast<std::size_t>(members));
  std::iota(order.begin(), order.end(), 0);
  if (algorithm == Algorithm::ring)  // from the member behind the owner round to the owner
    std::rotate(order.begin(), order.begin() + (chunk + 1) % members, order.end());
  return order;
}

template <class T>
std::vector<T> expected_chunk(const CollectiveSpec& spec, const Buffers<T>& in, int chunk) {
  const int members = static_cast<int>(in.size());
  switch (spec.kind) {
    case CollectiveKind::all_gather: return in[static_cast<std::size_t>(chunk)];
    case CollectiveKind::broadcast: return in[0];
    case CollectiveKind::all_to_all: return in[static_cast<std::size_t>(chunk / members)];
    default: break;
  }
  if (spec.algorithm == Algorithm::doubling) return sum_by_doubling(in);
  const std::uint64_t begin = spec.offsets[static_cast<std::size_t>(chunk)];
  const std::uint64_t end = spec.offsets[static_cast<std::size_t>(chunk) + 1];
  return sum_in_order(in, order_of(spec.algorithm, members, chunk), {begin, end - begin});
}

bool ends_with(const CollectiveSpec& spec, int member, int chunk) {
  const int members = static_cast<int>(spec.group.size());
  if (spec.kind == CollectiveKind::reduce_scatter) return chunk == member;
  if (spec.kind == CollectiveKind::all_to_all) return chunk % members == member;
  return true;
}

template <class T>
void expect_result(const CollectiveSpec& spec, const Buffers<T>& in, const std::vector<T>& out,
                   int member) {
  const int chunks = static_cast<int>(spec.offsets.size()) - 1;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (!ends_with(spec, member, chunk)) continue;
    const auto at = static_cast<std::size_t>(chunk);
    EXPECT_TRUE(
        same_elements(expected_chunk(spec, in, chunk), out, spec.offsets[at], spec.offsets[at + 1]))
        << name_of(spec.kind) << " by " << name_of(spec.algorithm) << ", " << in.size()
        << " members, " << spec.offsets.back() << " elements: chunk " << chunk << " at member "
        << member;
  }
}

template <class Act>
void for_each_spec(int members, std::uint64_t elements, Dtype dtype, const Act& act) {
  std::uint32_t unit = 0;
  for (const CollectiveKind kind : kAllKinds)
    for (const Algorithm algorithm : algorithms_of(kind)) {
      CollectiveSpec spec = spec_of(kind, algorithm, members, elements, dtype);
      spec.unit = unit++;
      act(spec);
    }
}

template <class T>
void expect_all_kinds(int members, const std::vector<std::uint64_t>& sizes,
                      std::uint64_t lane_elements) {
  std::vector<Buffers<T>> inputs;
  for (const std::uint64_t elements : sizes)
    inputs.push_back(random_buffers<T>(members, elements, static_cast<unsigned>(elements)));
  struct InFlight {
    std::unique_ptr<Collective> collective;
    std::vector<T> buffer;
    std::size_t size;
  };
  run_members(members, [&](Engine& engine) {
    ProgressThread progress_thread(engine);
    std::vector<InFlight> all;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      for_each_spec(members, sizes[i], dtype_of<T>(), [&](CollectiveSpec spec) {
        spec.lane_elements = lane_elements;
        spec.unit += 100 * static_cast<std::uint32_t>(i);
        all.push_back({std::make_unique<Collective>(engine, spec),
                       inputs[i][static_cast<std::size_t>(engine.rank())], i});
      });
    for (InFlight& each : all) {
      each.collective->begin(7);
      progress_thread.start(each.collective->operation(bytes_in(each.buffer), 0));
    }
    progress_thread.wait_all();
    for (const InFlight& each : all)
      expect_result(each.collective->spec(), inputs[each.size], each.buffer, engine.rank());
  });
}

constexpr int kMostRanks = 9;

TEST(Collective, GivesTheBitsThatItsOrderOfSummingGives) {
  const std::vector<std::uint64_t> sizes = {0, 1, 2, 3, 255, 256, 257, 1000};
  for (int members = 1; members <= kMostRanks; ++members) {
    expect_all_kinds<float>(members, sizes, 0);
    expect_all_kinds<double>(members, sizes, 0);
  }
}

TEST(Collective, GivesTheSameBitsInManyLanes) {
  for (int members = 1; members <= kMostRanks; ++members)
    expect_all_kinds<float>(members, {100'000}, 30'000);
  for (const int members : {2, 3, 5}) expect_all_kinds<double>(members, {10'001}, 1024);
}

TEST(Collective, GoesOnWithAnyRanksInAnyOrder) {
  const auto in = random_buffers<float>(3, 500, 3);
  run_members(5, [&](Engine& engine) {
    CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, Algorithm::direct, 3, 500);
    spec.group = {4, 0, 2};
    const auto at = std::ranges::find(spec.group, engine.rank());
    if (at == spec.group.end()) return;
    const int member = static_cast<int>(at - spec.group.begin());
    std::vector<float> buffer = in[static_cast<std::size_t>(member)];
    Collective collective(engine, spec);
    step_once(engine, collective, 0, bytes_in(buffer));
    expect_result(spec, in, buffer, member);
  });
}

TEST(Collective, MovesIntegersAndAddsThem) {
  run_members(3, [](Engine& engine) {
    const CollectiveSpec spec =
        spec_of(CollectiveKind::all_reduce, Algorithm::ring, 3, 4, Dtype::i64);
    std::vector<std::int64_t> buffer = {1, 10, engine.rank(), -5};
    Collective collective(engine, spec);
    step_once(engine, collective, 0, bytes_in(buffer));
    EXPECT_EQ(buffer, (std::vector<std::int64_t>{3, 30, 3, -15}));
  });
}

TEST(Collective, ExchangesChunksOfAnySizeInBuffersThatHoldOnlyTheirOwn) {
  constexpr int n = 3;
  const auto size_of = [](int from, int to) { return static_cast<std::uint64_t>(3 * from + to); };
  run_members(n, [&](Engine& engine) {
    const int self = engine.rank();
    CollectiveSpec spec = spec_of(CollectiveKind::all_to_all, Algorithm::direct, n, 0);
    spec.offsets = {0};
    std::vector<float> buffer;
    for (int from = 0; from < n; ++from)
      for (int to = 0; to < n; ++to) {
        const std::uint64_t size = from == self || to == self ? size_of(from, to) : 0;
        buffer.resize(buffer.size() + size, from == self ? static_cast<float>(10 * from + to) : -1);
        spec.offsets.push_back(buffer.size());
      }
    Collective collective(engine, spec);
    step_once(engine, collective, 0, bytes_in(buffer));
    for (int from = 0; from < n; ++from) {
      const auto chunk = static_cast<std::size_t>(from * n + self);
      ASSERT_EQ(spec.offsets[chunk + 1] - spec.offsets[chunk], size_of(from, self));
      for (std::uint64_t i = spec.offsets[chunk]; i < spec.offsets[chunk + 1]; ++i)
        EXPECT_EQ(buffer[i], static_cast<float>(10 * from + self));
    }
  });
}

TEST(Collective, GivesOneNanOnAllMembersWhateverWasBrought) {
  const std::uint32_t odd[] = {0x7fc00001, 0xffc12345, 0x7f800001, 0xff800000};
  for (const Algorithm algorithm : algorithms_of(CollectiveKind::all_reduce)) {
    std::vector<std::uint32_t> out(4);
    run_members(4, [&](Engine& engine) {
      const auto rank = static_cast<std::size_t>(engine.rank());
      std::vector<float> buffer = {std::bit_cast<float>(odd[rank])};
      Collective collective(engine, spec_of(CollectiveKind::all_reduce, algorithm, 4, 1));
      step_once(engine, collective, 0, bytes_in(buffer));
      out[rank] = std::bit_cast<std::uint32_t>(buffer[0]);
    });
    for (const std::uint32_t bits : out) EXPECT_EQ(bits, 0x7fc00000) << name_of(algorithm);
  }
}

// --- what is counted

std::uint64_t message_bytes(const CodecSpec& codec, Dtype dtype, std::uint64_t elements,
                            std::size_t segment_bytes) {
  const FrameHeader header{.codec = codec,
                           .tensor = {dtype, {static_cast<std::int64_t>(elements)}}};
  return wire_bytes(max_frame_bytes(header), segment_bytes);
}

Count expected_count(const CollectiveSpec& spec, int member, std::size_t segment_bytes) {
  const Plan plan = make_plan(spec.kind, spec.algorithm, static_cast<int>(spec.group.size()));
  Count count;
  bool is_result =
      spec.kind == CollectiveKind::all_gather || spec.kind == CollectiveKind::broadcast;
  for (const auto& slices : lanes_of(spec))
    for (const Hop& hop : plan.by_member[static_cast<std::size_t>(member)]) {
      if (hop.act == Act::encode) is_result = false;
      if (hop.act == Act::encode_result) is_result = true;
      if (hop.act != Act::send) continue;
      const bool is_empty = hop.chunk == kNoChunk;
      const std::uint64_t elements =
          is_empty ? 0 : slices[static_cast<std::size_t>(hop.chunk)].elements;
      const CodecSpec codec = is_empty ? Raw{} : is_result ? spec.down : spec.up;
      count += {1, elements * bytes_of(spec.dtype),
                message_bytes(codec, is_empty ? Dtype::u8 : spec.dtype, elements, segment_bytes)};
    }
  return count;
}

TEST(Collective, MetersExactlyWhatThePlanSends) {
  for (const int members : {1, 2, 3, 4, 7})
    for (const char* codec : {"raw", "quantise:bits=4"})
      run_members(members,
                  [&](Engine& engine) {
                    for_each_spec(members, 5000, Dtype::f32, [&](CollectiveSpec spec) {
                      spec.lane_elements = 3000;
                      spec.down = parse_codec(codec);
                      if (spec.algorithm != Algorithm::ring) spec.up = spec.down;
                      if (!check(spec).empty()) return;
                      std::vector<float> buffer(5000, 1.0F);
                      Collective collective(engine, spec);
                      engine.flush();
                      const MeterReading before = engine.meter().read();
                      step_once(engine, collective, 0, bytes_in(buffer));
                      engine.flush();
                      const MeterReading spent = engine.meter().read() - before;
                      EXPECT_EQ(sent(spent, spec.traffic),
                                expected_count(spec, engine.rank(), engine.options().segment_bytes))
                          << name_of(spec.kind) << " by " << name_of(spec.algorithm) << ", "
                          << codec;
                      EXPECT_EQ(sent(spent), sent(spent, spec.traffic));
                    });
                  },
                  {.segment_bytes = 1000});
}

// 2 (n - 1) / n of the buffer, and what frames and segments add.
TEST(Collective, SendsTwiceTheBufferLessOneShareAndHeaders) {
  constexpr int n = 4;
  constexpr std::uint64_t kElements = 1 << 20;
  run_members(n, [&](Engine& engine) {
    for (const Algorithm algorithm : {Algorithm::direct, Algorithm::ring}) {
      CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, algorithm, n, kElements);
      spec.unit = static_cast<std::uint32_t>(algorithm);
      std::vector<float> buffer(kElements, 1.0F);
      Collective collective(engine, spec);
      engine.flush();
      const MeterReading before = engine.meter().read();
      step_once(engine, collective, 0, bytes_in(buffer));
      engine.flush();
      const Count count = sent(engine.meter().read() - before, spec.traffic);
      EXPECT_EQ(count.raw_bytes, 2 * (n - 1) * kElements * 4 / n);
      EXPECT_LT(static_cast<double>(count.wire_bytes),
                1.0005 * static_cast<double>(count.raw_bytes));
    }
  });
}

TEST(Collective, TellsTheMeterHowLongItEncoded) {
  run_members(2, [](Engine& engine) {
    CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, Algorithm::direct, 2, 100'000);
    spec.up = spec.down = parse_codec("quantise:bits=4");
    std::vector<float> buffer(100'000, 1.0F);
    Collective collective(engine, spec);
    step_once(engine, collective, 0, bytes_in(buffer));
    const Times times = engine.meter().read().times.at(spec.traffic);
    EXPECT_GT(times.codec, 0.0);
    EXPECT_LE(times.codec, times.active);
  });
}

// --- many at once

TEST(Collective, CarriesManyAtOnceThroughOneProgressThreadInAnyOrder) {
  constexpr int n = 4, kUnits = 12;
  run_members(n, [&](Engine& engine) {
    ProgressThread progress_thread(engine);
    std::vector<std::unique_ptr<Collective>> collectives;
    std::vector<Buffers<float>> in;
    Buffers<float> buffers;
    for (int unit = 0; unit < kUnits; ++unit) {
      const std::uint64_t elements = 100 + 3000 * static_cast<std::uint64_t>(unit);
      CollectiveSpec spec = spec_of(CollectiveKind::all_reduce,
                                    unit % 2 ? Algorithm::ring : Algorithm::direct, n, elements);
      spec.unit = static_cast<std::uint32_t>(unit);
      spec.lane_elements = 5000;
      collectives.push_back(std::make_unique<Collective>(engine, spec));
      in.push_back(random_buffers<float>(n, elements, spec.unit));
      buffers.push_back(in.back()[static_cast<std::size_t>(engine.rank())]);
    }
    std::vector<std::size_t> order(kUnits);
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::shuffle(order, std::mt19937(static_cast<unsigned>(engine.rank())));
    for (const std::size_t unit : order) {
      collectives[unit]->begin(0);
      progress_thread.start(collectives[unit]->operation(bytes_in(buffers[unit]), kUnits - unit));
    }
    progress_thread.wait_all();
    for (std::size_t unit = 0; unit < kUnits; ++unit)
      expect_result(collectives[unit]->spec(), in[unit], buffers[unit], engine.rank());
  });
}

TEST(Collective, RefusesTwoOperationsAtOnceAndOneWithoutAStep) {
  run_members(1, [](Engine& engine) {
    Collective collective(engine, spec_of(CollectiveKind::all_reduce, Algorithm::direct, 1, 1));
    std::vector<float> buffer(1);
    EXPECT_THROW(collective.operation(bytes_in(buffer), 0), std::logic_error);
    collective.begin(0);
    auto first = collective.operation(bytes_in(buffer), 0);
    EXPECT_THROW(collective.operation(bytes_in(buffer), 0), std::logic_error);
    run(engine, *first);
    EXPECT_NO_THROW(collective.operation(bytes_in(buffer), 0));
  });
}

// --- lanes and checks

TEST(Lanes, CoverEveryChunkInOrder) {
  for (const int members : {1, 3, 4})
    for (const std::uint64_t elements : {0u, 5u, 10'000u, 1'000'003u})
      for (const std::uint64_t lane_elements : {0u, 1u, 3000u}) {
        CollectiveSpec spec =
            spec_of(CollectiveKind::all_reduce, Algorithm::direct, members, elements);
        spec.lane_elements = lane_elements;
        const auto lanes = lanes_of(spec);
        for (std::size_t chunk = 0; chunk + 1 < spec.offsets.size(); ++chunk) {
          std::uint64_t at = spec.offsets[chunk];
          for (const auto& slices : lanes) {
            EXPECT_EQ(slices[chunk].offset, at);
            at += slices[chunk].elements;
          }
          EXPECT_EQ(at, spec.offsets[chunk + 1]);
        }
        EXPECT_LE(lanes.size(), 4096u);
      }
}

TEST(CollectiveCheck, GivesEveryReasonAtOnce) {
  CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, Algorithm::ring, 3, 100, Dtype::bf16);
  spec.group = {0, 1, 1};
  spec.unit = 70'000;
  spec.offsets = {0, 10};
  spec.up = parse_codec("quantise:bits=4");
  spec.down = parse_codec("low_rank:rank=4");
  const std::string text = to_text(check(spec));
  for (const char* what :
       {"rank 1 is there twice", "70000 is not below 65536", "2 of them for 3 chunks",
        "sums of bf16", "use direct", "low_rank encodes matrices"})
    EXPECT_NE(text.find(what), std::string::npos) << what << " in\n" << text;
}

TEST(CollectiveCheck, RefusesWhatCannotWork) {
  const auto problems_of = [](auto change) {
    CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, Algorithm::direct, 2, 100);
    change(spec);
    return to_text(check(spec));
  };
  EXPECT_EQ(problems_of([](CollectiveSpec&) {}), "");
  EXPECT_NE(problems_of([](CollectiveSpec& s) { s.algorithm = Algorithm::tree; }), "");
  EXPECT_NE(problems_of([](CollectiveSpec& s) { s.group.clear(); }), "");
  EXPECT_NE(problems_of([](CollectiveSpec& s) { s.offsets = {0, 60, 50}; }), "");
  EXPECT_NE(problems_of([](CollectiveSpec& s) { s.offsets = {1, 60, 100}; }), "");
  EXPECT_NE(problems_of([](CollectiveSpec& s) {
              s.dtype = Dtype::i64;
              s.up = Half{};
            }),
            "");
  EXPECT_NE(problems_of([](CollectiveSpec& s) {
              s.algorithm = Algorithm::doubling;
              s.offsets = {0, 100};
              s.down = Half{};
            }),
            "");
  const auto gathered = [&](const CodecSpec& up, const CodecSpec& down) {
    return problems_of([&](CollectiveSpec& s) {
      s.algorithm = Algorithm::gathered;
      s.offsets = {0, 100};
      s.up = up;
      s.down = down;
    });
  };
  EXPECT_EQ(gathered(Half{}, Half{}), "");
  EXPECT_EQ(gathered(Raw{}, Raw{}), "");
  EXPECT_NE(gathered(Raw{}, Half{}).find("down: half, but gathered has no way down"),
            std::string::npos);
  EXPECT_NE(gathered(RandomK{}, Raw{}).find("added without decoding"), std::string::npos);
}

// --- the small ones

Bytes bytes_from(const std::string& text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

TEST(SmallCollective, GathersWhatEverybodyBrought) {
  for (int members = 1; members <= 5; ++members)
    run_members(members, [&](Engine& engine) {
      for (std::uint64_t number = 0; number < 3; ++number) {
        const auto mine = [&](int rank) {
          return bytes_from(std::string(static_cast<std::size_t>(rank) * 7, 'a') +
                            std::to_string(number));
        };
        const auto all = gather_all(engine, group_of_size(members), Traffic::control, 3, number,
                                    mine(engine.rank()));
        ASSERT_EQ(all.size(), static_cast<std::size_t>(members));
        for (int rank = 0; rank < members; ++rank)
          EXPECT_EQ(all[static_cast<std::size_t>(rank)], mine(rank));
      }
    });
}

TEST(SmallCollective, BroadcastsWhatMemberZeroBrought) {
  for (int members = 1; members <= 9; ++members)
    run_members(members, [&](Engine& engine) {
      for (const std::size_t size : {0u, 1u, 1000u}) {
        Group group = group_of_size(members);
        std::ranges::reverse(group);
        const Bytes mine = bytes_from(std::string(size, static_cast<char>('a' + engine.rank())));
        EXPECT_EQ(broadcast(engine, group, Traffic::control, 0, size, mine),
                  bytes_from(std::string(size, static_cast<char>('a' + members - 1))));
      }
    });
}

TEST(SmallCollective, NobodyPassesABarrierBeforeAllHaveCome) {
  for (const int members : {1, 2, 3, 6, 9}) {
    std::atomic<int> arrived = 0;
    run_members(members, [&](Engine& engine) {
      for (int round = 1; round <= 20; ++round) {
        if ((engine.rank() + round) % members == 0) std::this_thread::yield();
        ++arrived;
        barrier(engine, group_of_size(members), Traffic::control, 0,
                static_cast<std::uint64_t>(round));
        EXPECT_GE(arrived, round * members);
      }
    });
  }
}

}  // namespace

}  // namespace laconic
