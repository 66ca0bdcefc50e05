// data/test_data.hpp — for tests only: files and messages, and the real data where it is at hand.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "laconic/file/test_folder.hpp"

namespace laconic {

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spill(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string source_root() {
  const char* root = std::getenv("LACONIC_SOURCE");
  return root ? root : ".";
}

// The unpacked text of NAME.xz in $LACONIC_DATA, or where the data lies beside the checkout; empty
// when there is none.
inline std::string real_data(const std::string& name) {
  const char* folder = std::getenv("LACONIC_DATA");
  const std::string path =
      (folder ? folder : source_root() + "/../shared/data") + "/" + name + ".xz";
  if (!std::filesystem::exists(path)) return {};
  std::FILE* pipe = ::popen(("xz -dc '" + path + "' 2>/dev/null").c_str(), "r");
  std::string text;
  char block[1 << 16];
  for (std::size_t n; pipe && (n = std::fread(block, 1, sizeof block, pipe)) > 0;)
    text.append(block, n);
  return pipe && ::pclose(pipe) == 0 ? text : std::string();
}

// The message of the exception that `act` throws, "" if it throws none.
template <class Error, class Act>
std::string message_of(Act act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace laconic

#define LACONIC_EXPECT_MENTIONS(message, part) \
  EXPECT_NE(std::string(message).find(part), std::string::npos) << "message: " << (message)
