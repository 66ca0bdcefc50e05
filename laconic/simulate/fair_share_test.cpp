#include "laconic/simulate/fair_share.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "laconic/base/index.hpp"

namespace laconic {
namespace {

FlowPath path_of(std::initializer_list<int> links) {
  FlowPath path;
  for (const int link : links) path.add(link);
  return path;
}

TEST(FairShare, OneFlowHasItsNarrowestLinkToItself) {
  FairShare network;
  network.add_link(10);
  network.add_link(4);
  network.add_flow(path_of({0, 1}));
  network.start(0, 1, 20, 3);
  network.settle(3);
  EXPECT_DOUBLE_EQ(network.next_end(), 8);
  EXPECT_EQ(network.take_ended(8, 8), 0);
  EXPECT_EQ(network.take_ended(100, 8), -1);
  EXPECT_DOUBLE_EQ(network.carried(0), 20);
  EXPECT_DOUBLE_EQ(network.carried(1), 20);
}

TEST(FairShare, AfterAPauseABucketLetsSoMuchPassAtOnceAsItHasFilledMeanwhile) {
  FairShare network;
  network.add_link(10, 30);
  network.add_link(10, 20);
  network.add_flow(path_of({0, 1}));
  network.add_flow(path_of({0}));
  const auto seconds_of = [&](int flow, double bytes, double now) {
    network.start(flow, 1, bytes, now);
    network.settle(now);
    const double end = network.next_end();
    EXPECT_EQ(network.take_ended(end, end), flow);
    network.settle(end);
    return end - now;
  };
  EXPECT_DOUBLE_EQ(seconds_of(0, 50, 0), 3);      // 20 pass at once
  EXPECT_DOUBLE_EQ(seconds_of(1, 10, 3), 0);      // what the other link did not let pass
  EXPECT_DOUBLE_EQ(seconds_of(1, 10, 3), 1);      // empty
  EXPECT_DOUBLE_EQ(seconds_of(0, 50, 5.5), 3.5);  // of link 0 1.5 seconds, of link 1 more
  EXPECT_DOUBLE_EQ(seconds_of(0, 20, 100), 0);
  EXPECT_DOUBLE_EQ(network.carried(0), 140);
}

// Flow 0 over both links, flow 1 over the narrow one: 1 each; flow 2 has what is left of the wide.
TEST(FairShare, WhatAFlowCannotUseIsGivenToOthers) {
  FairShare network;
  network.add_link(2);
  network.add_link(10);
  network.add_flow(path_of({0, 1}));
  network.add_flow(path_of({0}));
  network.add_flow(path_of({1}));
  for (int flow = 0; flow < 3; ++flow) network.start(flow, 1, 18, 0);
  network.settle(0);
  EXPECT_DOUBLE_EQ(network.next_end(), 2);  // 18 / 9
  EXPECT_EQ(network.take_ended(2, 2), 2);
  network.settle(2);
  EXPECT_DOUBLE_EQ(network.next_end(), 18);
}

TEST(FairShare, AFlowOfWeightThreeIsThreeFlows) {
  FairShare one, three;
  for (FairShare* network : {&one, &three}) {
    network->add_link(8);
    for (int flow = 0; flow < 4; ++flow) network->add_flow(path_of({0}));
    network->start(3, 1, 6, 0);
  }
  one.start(0, 3, 30, 0);
  for (int flow = 0; flow < 3; ++flow) three.start(flow, 1, 10, 0);
  for (FairShare* network : {&one, &three}) {
    network->settle(0);
    EXPECT_DOUBLE_EQ(network->next_end(), 3);
    EXPECT_EQ(network->take_ended(3, 3), 3);
    network->settle(3);
    EXPECT_DOUBLE_EQ(network->next_end(), 3 + 12.0 / 8);
  }
}

TEST(FairShare, AFlowCanBeShortenedAndGoOn) {
  FairShare network;
  network.add_link(2);
  network.add_flow(path_of({0}));
  network.start(0, 1, 20, 0);
  network.settle(0);
  EXPECT_DOUBLE_EQ(network.left(0, 3), 14);
  network.shorten(0, 10, 3);
  network.settle(3);
  EXPECT_DOUBLE_EQ(network.next_end(), 5);
  EXPECT_EQ(network.take_ended(5, 5), 0);
  EXPECT_DOUBLE_EQ(network.carried(0), 10);
  network.start(0, 1, 10, 5);
  network.settle(5);
  EXPECT_DOUBLE_EQ(network.next_end(), 10);
}

// Max-min fairness is known by this: every flow has a link that is full and on which nobody has
// more for its weight. Rates are read off what is left a moment later.
TEST(FairShare, EveryFlowHasABottleneckWhateverHappens) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    FairShare network;
    const int links = 2 + static_cast<int>(random() % 6),
              flows = 1 + static_cast<int>(random() % 12);
    std::vector<double> capacity;
    for (int l = 0; l < links; ++l) {
      capacity.push_back(1 + static_cast<double>(random() % 5));
      network.add_link(capacity.back());
    }
    std::vector<FlowPath> paths;
    std::vector<double> weights;
    for (int f = 0; f < flows; ++f) {
      FlowPath path;
      for (int l = 0; l < links && path.count < kMostLinksOfAFlow; ++l)
        if (random() % 2 == 0) path.add(l);
      if (path.count == 0) path.add(0);
      paths.push_back(path);
      weights.push_back(1 + static_cast<double>(random() % 3));
      network.add_flow(path);
    }
    std::vector<bool> is_active(index(flows), false);
    double now = 0;
    for (int change = 0; change < 20; ++change) {
      for (int f = 0; f < flows; ++f)
        if (!is_active[index(f)] && random() % 2 == 0) {
          network.start(f, weights[index(f)], 1 + static_cast<double>(random() % 9), now);
          is_active[index(f)] = true;
        }
      network.settle(now);
      const double next = network.next_end();
      if (std::ranges::find(is_active, true) == is_active.end()) continue;
      ASSERT_LT(next, 1e9);
      const double moment = (next - now) / 2;
      std::vector<double> used(index(links), 0), rate(index(flows), 0);
      for (int f = 0; f < flows; ++f) {
        if (!is_active[index(f)]) continue;
        rate[index(f)] = (network.left(f, now) - network.left(f, now + moment)) / moment;
        for (int i = 0; i < paths[index(f)].count; ++i)
          used[index(paths[index(f)].links.at(index(i)))] += rate[index(f)];
      }
      for (int f = 0; f < flows; ++f) {
        if (!is_active[index(f)]) continue;
        bool has_bottleneck = false;
        for (int i = 0; i < paths[index(f)].count; ++i) {
          const int link = paths[index(f)].links.at(index(i));
          EXPECT_LE(used[index(link)], capacity[index(link)] * (1 + 1e-9));
          bool is_most = used[index(link)] > capacity[index(link)] * (1 - 1e-9);
          for (int g = 0; g < flows; ++g)
            for (int j = 0; is_active[index(g)] && j < paths[index(g)].count; ++j)
              if (paths[index(g)].links.at(index(j)) == link &&
                  rate[index(g)] / weights[index(g)] >
                      rate[index(f)] / weights[index(f)] * (1 + 1e-9))
                is_most = false;
          has_bottleneck |= is_most;
        }
        EXPECT_TRUE(has_bottleneck) << "round " << round << ", change " << change << ", flow " << f;
      }
      now = next;
      const double same = now * (1 + 1e-12);  // but for rounding
      for (int f = network.take_ended(same, now); f != -1; f = network.take_ended(same, now))
        is_active[index(f)] = false;
    }
  }
}

}  // namespace
}  // namespace laconic
