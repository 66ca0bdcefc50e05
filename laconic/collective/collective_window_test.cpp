// Lanes of encoded sums: how they are cut, and that a member does not run ahead of the others.
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
  std::vector<float> buffer(kElements, 1.0F);
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

}  // namespace
}  // namespace laconic
