#include "laconic/file/json.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

std::string json_refusal(const std::string& text) {
  try {
    parse_json(text, "x");
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Json, ReadsWhatIsThere) {
  EXPECT_EQ(parse_json(R"({"a": [1, {"a": 2}], "b": {"a": 3}})", "x")["a"][1]["a"], 2);
}

TEST(Json, RefusesWhatTheLibraryWouldLetPass) {
  EXPECT_EQ(json_refusal(R"({"a":1,"a":2})"), "x: a: the key is there twice; remove one");
  EXPECT_EQ(json_refusal(R"([{"b":{"a":1,"a":2}}])"), "x: a: the key is there twice; remove one");
  EXPECT_EQ(json_refusal(std::string(100, '[')), "x: nested deeper than 32");
}

TEST(Json, SaysWhereItIsDamaged) {
  EXPECT_EQ(json_refusal(R"({"a":)"),
            "x: is not JSON at byte 6 of 5; the file is damaged or incomplete");
  EXPECT_EQ(json_refusal("{} x"),
            "x: is not JSON at byte 4 of 4; the file is damaged or incomplete");
  EXPECT_EQ(json_refusal("[1e999]"), "x: holds a number out of range");
}

}  // namespace
}  // namespace laconic
