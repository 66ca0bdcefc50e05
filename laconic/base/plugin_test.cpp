#include "laconic/base/plugin.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "laconic/base/error.hpp"

namespace laconic {
namespace {

std::string refusal(const std::string& file) {
  try {
    open_plugin({file, 7, "do something"});
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

TEST(Plugin, OpensAModuleBesideTheProgram) {
  ASSERT_TRUE(find_plugin("laconic-test-good.so"));
  const auto entry = reinterpret_cast<int (*)()>(open_plugin({"laconic-test-good.so", 7, ""}));
  EXPECT_EQ(entry(), 42);
}

TEST(Plugin, AMissingOneIsNamedWithEveryPlaceAndTheRemedy) {
  EXPECT_FALSE(find_plugin("laconic-test-none.so"));
  const std::string text = refusal("laconic-test-none.so");
  const std::vector<std::string> places = plugin_places("laconic-test-none.so");
  EXPECT_EQ(places.size(), 3u);
  for (const std::string& place : places) EXPECT_NE(text.find(place), std::string::npos) << text;
  EXPECT_NE(text.find("/lib/laconic/"), std::string::npos) << text;
  EXPECT_NE(text.find("do something"), std::string::npos) << text;
}

TEST(Plugin, WithoutProcThereIsNoneAndNobodyDies) {
  ASSERT_TRUE(find_plugin("laconic-test-good.so"));
  EXPECT_EQ(plugin_places("laconic-test-good.so", "/nowhere/self/exe"), std::vector<std::string>());
  EXPECT_FALSE(find_plugin("laconic-test-good.so", "/nowhere/self/exe"));
}

TEST(Plugin, OneOfAnotherInterfaceIsRefused) {
  const std::string text = refusal("laconic-test-old.so");
  EXPECT_NE(text.find("its interface is 6, and 7 is wanted"), std::string::npos) << text;
}

TEST(Plugin, WhatIsNoModuleIsRefused) {
  EXPECT_NE(refusal("laconic-test-empty.so").find("no module of laconic"), std::string::npos);
  const std::string path = plugin_places("laconic-test-text.so").front();
  std::ofstream(path) << "not a shared object";
  EXPECT_NE(refusal("laconic-test-text.so").find(path), std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace laconic
