#include "laconic/link/delta_store.hpp"

#include <gtest/gtest.h>

namespace laconic {
namespace {

TEST(DeltaStore, StagedIsSeenInTheStepAndStoredAfterIt) {
  DeltaStore store({.record_bytes = 3});
  ASSERT_TRUE(store.stage(7, 1).has_value());
  EXPECT_TRUE(store.find(7).has_value());
  EXPECT_EQ(store.size(), 0u);
  store.commit();
  EXPECT_EQ(store.size(), 1u);
}

}  // namespace
}  // namespace laconic
