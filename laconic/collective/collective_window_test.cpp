// Lanes: how they are cut where sums are encoded, that a member does not run ahead of the others,
// and how many are under way.
#include <algorithm>
#include <memory>

#include "laconic/collective/test_collective.hpp"

namespace laconic {
namespace {

constexpr std::uint64_t kElements = 1'000'000;

CollectiveSpec encoded(const char* codec, int members) {
  CollectiveSpec spec = spec_of(CollectiveKind::all_reduce, Algorithm::direct, members, kElements);
  spec.up = spec.down = parse_codec(codec);
  return spec;
}

std::uint64_t longest_message(const CollectiveSpec& spec) {
  std::uint64_t longest = 0;
  for (const auto& slices : lanes_of(spec))
    for (const Slice& slice : slices)
      longest = std::max(
          longest,
          max_payload_bytes(spec.up, {spec.dtype, {static_cast<std::int64_t>(slice.elements)}}));
  return longest;
}

TEST(LaneCut, IsFineWhereEncodedContributionsMeet) {
  for (const char* codec : {"half", "quantise:bits=8", "quantise:bits=4"})
    for (const int members : {3, 4, 8}) {
      const std::uint64_t meeting = longest_message(encoded(codec, members)) * (members - 1);
      EXPECT_LE(meeting, 72u << 10) << codec << ", " << members;
      EXPECT_GT(meeting, 36u << 10) << codec << ", " << members;
    }
}

TEST(LaneCut, IsCoarseWhereTheyDoNot) {
  CollectiveSpec raw = encoded("raw", 4);
  EXPECT_GT(longest_message(raw), 200u << 10);
  EXPECT_GT(longest_message(encoded("half", 2)), 100u << 10) << "one sender for each owner";
}

// The others do not take part, so nothing ends.
std::uint64_t messages_begun(const CollectiveSpec& spec) {
  const auto transports = make_in_process(static_cast<int>(spec.group.size()));
  Engine engine(*transports[0]);
  Collective collective(engine, spec);
  std::vector<float> buffer(spec.offsets.back(), 1.0F);
  collective.begin(0);
  {
    const auto operation = collective.operation(reinterpret_cast<std::byte*>(buffer.data()), 1);
    EXPECT_FALSE(operation->advance(engine));
    EXPECT_FALSE(operation->advance(engine));
  }
  collective.abandon();
  engine.flush();
  return sent(engine.meter().read(), spec.traffic).messages;
}

TEST(LaneWindow, LetsAMemberBeginOneLaneUntilTheOthersHaveBeenHeard) {
  const CollectiveSpec spec = encoded("half", 4);
  ASSERT_GT(lanes_of(spec).size(), 5u);
  EXPECT_EQ(messages_begun(spec), 3u) << "a contribution for each of the others";
}

TEST(LaneWindow, HoldsNobodyBackWhereNoSendersMeet) {
  const CollectiveSpec two = encoded("half", 2), raw = encoded("raw", 4);
  EXPECT_EQ(messages_begun(two), lanes_of(two).size());
  EXPECT_EQ(messages_begun(raw), 3 * lanes_of(raw).size());
}

CollectiveSpec ring_of_lanes(CollectiveKind kind, int lanes) {
  CollectiveSpec spec = spec_of(kind, Algorithm::ring, 4, 4096 * static_cast<std::uint64_t>(lanes));
  spec.lane_elements = 4096;
  return spec;
}

TEST(LanesUnderWay, AreFewUntilSomeHaveEnded) {
  const CollectiveSpec spec = ring_of_lanes(CollectiveKind::all_reduce, 100);
  ASSERT_EQ(lanes_of(spec).size(), 100u);
  EXPECT_EQ(messages_begun(spec), 32u);
}

// Members take turns. Of 100 lanes 32 go round together, and in a turn everybody passes on what has
// come, of all of them: four times the six messages that a lane of an all-reduce sends at a member.
TEST(LanesUnderWay, GoRoundTogether) {
  for (const auto& [kind, messages] :
       {std::pair{CollectiveKind::all_reduce, 6}, {CollectiveKind::all_gather, 3}}) {
    const CollectiveSpec spec = ring_of_lanes(kind, 100);
    const auto transports = make_in_process(4);
    std::vector<std::unique_ptr<Engine>> engines;
    std::vector<std::unique_ptr<Collective>> collectives;
    std::vector<std::shared_ptr<Operation>> operations;
    std::vector<std::vector<float>> buffers(4, std::vector<float>(spec.offsets.back(), 1.0F));
    for (std::size_t m = 0; m < 4; ++m) {
      engines.push_back(std::make_unique<Engine>(*transports[m]));
      collectives.push_back(std::make_unique<Collective>(*engines[m], spec));
      collectives[m]->begin(0);
      operations.push_back(collectives[m]->operation(bytes_in(buffers[m]), 1));
    }
    int turns = 0;
    for (std::size_t ended = 0; ended < 4 && turns < 1000; ++turns) {
      ended = 0;
      for (std::size_t m = 0; m < 4; ++m) {
        ended += operations[m]->advance(*engines[m]) ? 1 : 0;
        engines[m]->flush();
      }
    }
    EXPECT_LE(turns, 4 * (messages + 1)) << name_of(kind);
    const float sum = kind == CollectiveKind::all_reduce ? 4.0F : 1.0F;
    for (const auto& buffer : buffers)
      EXPECT_EQ(std::ranges::count(buffer, sum), static_cast<std::ptrdiff_t>(buffer.size()));
  }
}

}  // namespace
}  // namespace laconic
