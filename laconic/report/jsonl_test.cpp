#include "laconic/report/jsonl.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/file/mapped_file.hpp"
#include "laconic/file/test_folder.hpp"

namespace laconic {
namespace {

std::string text_in(const std::string& path) {
  return std::string(MappedFile(path).text());
}

TEST(JsonLines, KeepTheirOrderAndAreThereAtOnce) {
  const TemporaryFolder folder;
  JsonLines lines(folder / "log.jsonl");
  lines.write({{"step", 1}, {"loss", 2.5}, {"a", "x\ny"}});
  const std::string first = "{\"step\":1,\"loss\":2.5,\"a\":\"x\\ny\"}\n";
  EXPECT_EQ(text_in(folder / "log.jsonl"), first);
  lines.write({{"step", 2}, {"loss", std::nan("")}, {"bad", "\xff"}});
  EXPECT_EQ(text_in(folder / "log.jsonl"),
            first + "{\"step\":2,\"loss\":null,\"bad\":\"\xef\xbf\xbd\"}\n");
}

TEST(JsonLines, ResumingLeavesNoStepTwice) {
  const TemporaryFolder folder;
  const std::string path = folder / "log.jsonl";
  {
    JsonLines lines(path);
    lines.write({{"event", "start"}});
    for (int step = 1; step <= 5; ++step) lines.write({{"step", step}, {"try", 1}});
  }
  {
    JsonLines lines(path, 4);
    for (int step = 4; step <= 6; ++step) lines.write({{"step", step}, {"try", 2}});
  }
  EXPECT_EQ(text_in(path),
            "{\"event\":\"start\"}\n"
            "{\"step\":1,\"try\":1}\n{\"step\":2,\"try\":1}\n{\"step\":3,\"try\":1}\n"
            "{\"step\":4,\"try\":2}\n{\"step\":5,\"try\":2}\n{\"step\":6,\"try\":2}\n");
}

TEST(JsonLines, ATornLastLineIsTakenOff) {
  const std::string whole = "{\"step\":1}\n{\"step\":2,\"text\":\"{}\"}\n";
  const std::size_t first = whole.find('\n') + 1;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string kept = kept_lines(whole.substr(0, size), std::nullopt, "x");
    // A line that only lacks its newline is whole.
    const std::string expected = size + 1 == whole.size() ? whole
                                 : size + 1 >= first      ? whole.substr(0, first)
                                                          : "";
    EXPECT_EQ(kept, expected) << size;
  }
  EXPECT_EQ(kept_lines(whole + std::string(9, '\0'), std::nullopt, "x"), whole);
}

TEST(JsonLines, OpeningATornFileRepairsIt) {
  const TemporaryFolder folder;
  write_atomically(folder / "a", "{\"step\":1}\n{\"st");
  JsonLines(folder / "a").write({{"step", 2}});
  EXPECT_EQ(text_in(folder / "a"), "{\"step\":1}\n{\"step\":2}\n");
}

TEST(JsonLines, DamageInTheMiddleIsNamed) {
  try {
    kept_lines("{}\nnonsense\n{}\n", std::nullopt, "x");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_STREQ(error.what(),
                 "x: line 2: is not a JSON object; move the file away to go on with a new one");
  }
}

}  // namespace
}  // namespace laconic
