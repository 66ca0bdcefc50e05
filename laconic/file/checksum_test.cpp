#include "laconic/file/checksum.hpp"

#include <gtest/gtest.h>

#include "laconic/file/atomic_file.hpp"
#include "laconic/file/test_folder.hpp"
#include "laconic/file/test_view.hpp"

namespace laconic {
namespace {

// The value of nothing is in xxHash's own documentation of XXH3-64 with seed 0.
TEST(Checksum, OfNothingIsThePublishedValue) {
  EXPECT_EQ(Checksum().hex(), "2d06800538d394c2");
}

TEST(Checksum, DoesNotDependOnTheCuts) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>(i * 7);
  Checksum whole;
  whole.update(view(text));
  for (const std::size_t cut : {0, 1, 255, 256, 257, 1024, 2999}) {
    Checksum parts;
    parts.update(view(text).first(cut));
    parts.value();  // asking in between changes nothing
    parts.update(view(text).subspan(cut));
    EXPECT_EQ(parts.hex(), whole.hex()) << cut;
  }
}

TEST(Checksum, OfAFileIsThatOfItsBytes) {
  const TemporaryFolder folder;
  write_atomically(folder / "a", "abc");
  Checksum sum;
  sum.update(view("abc"));
  EXPECT_EQ(checksum_of_file(folder / "a"), sum.hex());
}

}  // namespace
}  // namespace laconic
