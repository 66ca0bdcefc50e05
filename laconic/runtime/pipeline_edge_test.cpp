// Edges whose seam has several tensors; what one link does is in edge_test.cpp.
#include "laconic/runtime/pipeline_edge.hpp"

#include <set>

#include "laconic/runtime/pipeline.hpp"
#include "laconic/runtime/test_edge.hpp"
#include "laconic/schedule/lower.hpp"

namespace laconic {
namespace {

// The second has another width than the first, and another number of dims.
const std::vector<SeamTensor> kTwoTensors = {{"x", {kTokens, kWidth}}, {"memory", {2, 3, 8}}};
const Keys kTwoSamples = {4, 9};

PipelinePlan two_stages(const LinkSpec& activation, const LinkSpec& gradient) {
  return {.schedule = lowered(one_forward_one_backward({2, 2, 1})),
          .stages = {{0, 1}, {1, 2}},
          .encoded = {},
          .activation = activation,
          .gradient = gradient};
}

Seam seam_of(std::uint64_t step) {
  const at::Tensor x = activations(kTwoSamples, step);
  return {x.view({2, kTokens, kWidth}), x.slice(0, 0, 6).reshape({2, 2, 3, 8}).mul(-3)};
}

// Activations go up, and what came comes back: what each rank got.
using Received = std::vector<std::vector<Seam>>;  // [rank][step]
Received exchange(const PipelinePlan& plan, std::uint64_t steps) {
  Received received(2);
  run_ranks(2, [&](Transport& transport) {
    Engine engine(transport);
    const bool is_upper = transport.rank() == 1;
    PipelineEdge edge(engine, plan, kTwoTensors, 0, 1 - transport.rank(), is_upper);
    edge.awaited = {0};
    const MessageSpec message{.number = 0, .samples = kTwoSamples};
    const auto recv = [&] {
      return edge.recv(kTwoTensors, 2, at::kFloat, message, [&] {
        for (const auto& ends : edge.ends) ends->sender.serve();
      });
    };
    for (std::uint64_t step = 0; step < steps; ++step) {
      edge.begin(step);
      if (!is_upper) edge.send(seam_of(step), message, 0);
      const Seam got = recv();
      if (is_upper) edge.send(got, message, 0);
      received[static_cast<std::size_t>(transport.rank())].push_back(got);
      for (const auto& ends : edge.ends) {
        ends->sender.commit();
        ends->receiver.commit();
      }
    }
    engine.flush();
  });
  return received;
}

const LinkSpec kRawLink{"", Raw{}, NoMemory{}};

TEST(PipelineEdge, EveryTensorOfASeamArrivesWithItsShapeAndInItsPlace) {
  const Received received = exchange(two_stages(kRawLink, kRawLink), 2);
  for (const auto& of_rank : received)
    for (std::uint64_t step = 0; step < 2; ++step) {
      const Seam sent = seam_of(step);
      ASSERT_EQ(of_rank[step].size(), 2U);
      for (std::size_t t = 0; t < 2; ++t) {
        EXPECT_EQ(of_rank[step][t].sizes(), sent[t].sizes());
        EXPECT_TRUE(of_rank[step][t].equal(sent[t])) << "tensor " << t << ", step " << step;
      }
    }
}

TEST(PipelineEdge, LinksOfOneEdgeHaveNamesAndTagsOfTheirOwn) {
  const auto transports = make_in_process(2);
  Engine engine(*transports[0]);
  const PipelineEdge edge(engine, two_stages(kRawLink, kRawLink), kTwoTensors, 5, 1, false);
  ASSERT_EQ(edge.ends.size(), 2U);
  EXPECT_EQ(edge.ends[0]->sender.spec().link.name, "pp.activation.5");
  EXPECT_EQ(edge.ends[1]->sender.spec().link.name, "pp.activation.5.memory");
  EXPECT_EQ(edge.ends[1]->receiver.spec().link.name, "pp.gradient.5.memory");
  std::set<Tag> tags;
  for (const auto& ends : edge.ends)
    for (const Use use : {Use::train, Use::evaluation}) {
      EXPECT_TRUE(tags.insert(message_tag(ends->sender.spec(), 0, {.use = use})).second);
      EXPECT_TRUE(tags.insert(message_tag(ends->receiver.spec(), 0, {.use = use})).second);
    }
}

// Each link is what it is by itself: references of one are not those of the other.
TEST(PipelineEdge, EachTensorHasAMemoryOfItsOwn) {
  const PipelinePlan plan = two_stages(delta_link({.first = Raw{}, .hash_every = 1}), kRawLink);
  const Received received = exchange(plan, 3);
  for (std::size_t t = 0; t < 2; ++t) {
    EXPECT_TRUE(received[1][0][t].equal(seam_of(0)[t])) << "a first visit loses nothing";
    EXPECT_FALSE(received[1][2][t].equal(seam_of(2)[t])) << "a difference does";
    const double error = received[1][2][t].sub(seam_of(2)[t]).abs().max().item<double>();
    EXPECT_LT(error, 0.2) << "but only a little: tensor " << t;
    EXPECT_TRUE(received[0][2][t].equal(received[1][2][t])) << "it came back raw";
  }
}

TEST(PipelineEdge, ASeamOfTheWrongLengthIsAMistake) {
  const auto transports = make_in_process(2);
  Engine engine(*transports[0]);
  PipelineEdge edge(engine, two_stages(kRawLink, kRawLink), kTwoTensors, 0, 1, false);
  edge.awaited = {0};
  edge.begin(0);
  EXPECT_THROW(edge.send({seam_of(0)[0]}, {.samples = kTwoSamples}, 0), std::logic_error);
}

}  // namespace
}  // namespace laconic
