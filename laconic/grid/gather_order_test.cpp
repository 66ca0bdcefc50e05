#include "laconic/grid/gather_order.hpp"

#include <gtest/gtest.h>

namespace laconic {
namespace {

using Places = std::vector<GatherPlace>;

const Places kThere = {{0, 1}, {0, 3}, {1, 1}, {1, 3}};
const Places kBack = {{1, 3}, {1, 1}, {0, 3}, {0, 1}};

Places expected(const GatherOrder& order) {
  return {order.expected().begin(), order.expected().end()};
}

// Makes a pass; what was expected at its beginning, and after each that was asked for.
std::vector<Places> make_pass(GatherOrder& order, const PassName& name, const Places& places) {
  order.begin(name);
  std::vector<Places> all = {expected(order)};
  for (const GatherPlace& place : places) {
    order.ask(place);
    all.push_back(expected(order));
  }
  order.end();
  return all;
}

TEST(GatherOrder, APassSaysWhatTheNextOfItsKindAsksFor) {
  GatherOrder order;
  const PassName forward{PassKind::forward, 0}, backward{PassKind::backward, 0};
  for (const Places& nothing : make_pass(order, forward, kThere)) EXPECT_TRUE(nothing.empty());
  for (const Places& nothing : make_pass(order, backward, kBack)) EXPECT_TRUE(nothing.empty());
  for (int again = 0; again < 2; ++again) {
    const auto there = make_pass(order, forward, kThere), back = make_pass(order, backward, kBack);
    for (std::size_t asked = 0; asked <= kThere.size(); ++asked) {
      EXPECT_EQ(there[asked], Places(kThere.begin() + asked, kThere.end())) << asked;
      EXPECT_EQ(back[asked], Places(kBack.begin() + asked, kBack.end())) << asked;
    }
  }
  // Of another stage nothing is known.
  EXPECT_EQ(make_pass(order, {PassKind::forward, 2}, kThere)[1], Places());
}

TEST(GatherOrder, AnotherWayIsLearntFromWhereItParts) {
  GatherOrder order;
  const PassName name{PassKind::evaluation, 0};
  make_pass(order, name, kThere);
  const Places other = {{0, 1}, {0, 2}, {1, 1}};
  const auto seen = make_pass(order, name, other);
  EXPECT_EQ(seen[1], Places(kThere.begin() + 1, kThere.end()));
  EXPECT_EQ(seen[2], Places());
  EXPECT_EQ(make_pass(order, name, other)[1], Places(other.begin() + 1, other.end()));
}

TEST(GatherOrder, AShorterPassForgetsTheRest) {
  GatherOrder order;
  const PassName name{PassKind::forward, 0};
  make_pass(order, name, kThere);
  make_pass(order, name, {kThere[0]});
  EXPECT_EQ(make_pass(order, name, kThere)[1], Places());
}

TEST(GatherOrder, OutsideOfAPassNothingIsExpected) {
  GatherOrder order;
  order.ask(kThere[0]);
  order.ask(kThere[1]);
  EXPECT_EQ(expected(order), Places());
}

}  // namespace
}  // namespace laconic
