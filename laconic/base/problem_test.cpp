#include "laconic/base/problem.hpp"

#include <gtest/gtest.h>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

const Problems kTwo = {{"codec", "is none"}, {"", "there are 3 ranks"}};

TEST(Problems, MoveUnderASectionOrToOnePlace) {
  EXPECT_EQ(under("dp.gradient", kTwo),
            (Problems{{"dp.gradient.codec", "is none"}, {"dp.gradient", "there are 3 ranks"}}));
  EXPECT_EQ(all_at("--set", kTwo),
            (Problems{{"--set", "is none"}, {"--set", "there are 3 ranks"}}));
  EXPECT_EQ(under("x", {}), Problems());
}

TEST(Problems, AreAppendedInOrder) {
  Problems all = {{"a", "b"}};
  append(all, {});
  EXPECT_EQ(all.size(), 1U);
  append(all, kTwo);
  EXPECT_EQ(all, (Problems{{"a", "b"}, {"codec", "is none"}, {"", "there are 3 ranks"}}));
}

TEST(Problems, AreRefusedAllAtOnceAndOnlyIfThereAreSome) {
  EXPECT_NO_THROW(refuse({}));
  try {
    refuse(kTwo);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.problems(), kTwo);
    EXPECT_STREQ(error.what(), "codec: is none\nthere are 3 ranks");
  }
}

}  // namespace
}  // namespace laconic
