// The main() of a program that holds several tests. --files=a_test.cpp,b_test.cpp runs what is in
// these sources alone, which is what a test of cmake/laconic.cmake is; a --gtest_filter given by
// hand counts instead.
#include <gtest/gtest.h>

#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

namespace {

constexpr std::string_view kFiles = "--files=";

std::set<std::string> files_of(std::string_view words) {
  std::set<std::string> files;
  std::istringstream stream{std::string(words)};
  for (std::string file; std::getline(stream, file, ',');) files.insert(file);
  return files;
}

std::string filter_for(const std::set<std::string>& files) {
  const auto name_of = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (files.count(name_of(test.file())) == 0) continue;
      filter += (filter.empty() ? "" : ":") + (std::string(suite.name()) + "." + test.name());
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.substr(0, kFiles.size()) != kFiles) {
      std::cerr << argv[0] << ": '" << word << "' is no option\n";
      return 2;
    }
    if (testing::GTEST_FLAG(filter) != "*") continue;
    const std::string filter = filter_for(files_of(word.substr(kFiles.size())));
    if (filter.empty()) {
      std::cerr << argv[0] << ": no test is in any of " << word.substr(kFiles.size()) << '\n';
      return 2;
    }
    testing::GTEST_FLAG(filter) = filter;
  }
  return RUN_ALL_TESTS();
}
