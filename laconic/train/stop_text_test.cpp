#include "laconic/train/stop_text.hpp"

#include <gtest/gtest.h>

namespace laconic {
namespace {

// What comes through when the text is cut in pieces of `size` bytes.
std::string through(const std::vector<std::string>& stops, std::string_view text,
                    std::size_t size) {
  StopText filter(stops);
  std::string out;
  for (; !text.empty(); text.remove_prefix(std::min(size, text.size()))) {
    out += filter.add(text.substr(0, size));
    EXPECT_TRUE(text.empty() || out.size() <= 100);
  }
  return out + filter.finish();
}

TEST(StopText, EndsWhereTheFirstStopStringBeginsHoweverTheTextIsCut) {
  const struct {
    std::vector<std::string> stops;
    const char* text;
    const char* expected;
  } cases[] = {{{}, "one two", "one two"},
               {{"two"}, "one two three", "one "},
               {{"two"}, "one tw", "one tw"},
               {{"aab"}, "aaaab", "aa"},
               {{"abab", "zz"}, "ababab", ""},
               {{"\n\n", "end"}, "a\nb en\n\nend", "a\nb en"},
               {{"three", "two"}, "one two three", "one "},
               {{"x"}, "no stop here", "no stop here"}};
  for (const auto& c : cases)
    for (std::size_t size = 1; size < 15; ++size)
      EXPECT_EQ(through(c.stops, c.text, size), c.expected) << c.text << ", pieces of " << size;
}

TEST(StopText, HoldsBackOnlyWhatMayBecomeAStopString) {
  StopText filter({"stop"});
  EXPECT_EQ(filter.add("a st"), "a ");
  EXPECT_EQ(filter.add("x"), "stx");
  EXPECT_FALSE(filter.is_stopped());
  EXPECT_EQ(filter.add("sto"), "");
  EXPECT_EQ(filter.add("p and more"), "");
  EXPECT_TRUE(filter.is_stopped());
  EXPECT_EQ(filter.add("more"), "");
  EXPECT_EQ(filter.finish(), "");
}

}  // namespace
}  // namespace laconic
