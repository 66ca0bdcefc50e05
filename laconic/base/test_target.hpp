// base/test_target.hpp — for tests: every instruction set of this processor and build, one by one.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cstdint>

namespace laconic {

// Runs `body` once per target that Highway compiled and this processor has, best to plainest.
template <class Body>
void for_each_target(const Body& body) {
  std::int64_t targets = hwy::SupportedTargets();
  while (targets != 0) {
    const std::int64_t target = targets & -targets;
    targets ^= target;
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace laconic
