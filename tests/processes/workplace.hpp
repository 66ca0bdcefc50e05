// tests/processes/workplace.hpp — a folder in which a user works: a text, a dataset, a
// configuration, runs.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "laconic/file/test_folder.hpp"
#include "tests/processes/process.hpp"

namespace laconic {

using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b);  // one after the other

// Every file and folder below `path`, with the check sum of the files.
std::map<std::string, std::string> snapshot(const std::string& path);

void write_text(const std::string& path, const std::string& text);
void flip_bit(const std::string& path, std::uint64_t byte);
void cut_in_half(const std::string& path);

class Workplace : public testing::Test {
 protected:
  Workplace();  // text.txt, and run.toml: six steps of a tiny model into runs/a

  static std::string program();  // the path of laconic
  ProcessSpec spec(const Words& arguments) const;
  ProcessResult laconic(const Words& arguments) const;
  // As above, and says so when it does not end with `exit_code`.
  ProcessResult expect_exit(int exit_code, const Words& arguments) const;
  void prepare() const;  // data and data-valid

  std::string operator/(const std::string& name) const { return folder_ / name; }
  std::string text(const std::string& name) const { return read_text(folder_ / name); }
  std::string checkpoint(const std::string& run, std::int64_t step) const;  // relative
  std::vector<std::int64_t> steps_saved(const std::string& run) const;
  // By step, in the order of the log; a step that is there twice fails the test.
  std::map<std::int64_t, double> losses(const std::string& run) const;
  // False when the process ends before, or after a minute.
  bool wait_until(Process& process, const std::function<bool()>& holds) const;
  // The log of a run holds `step`.
  bool wait_for_step(Process& process, const std::string& run, std::int64_t step) const;
  void expect_same_end(const std::string& run, const std::string& other, std::int64_t step) const;

  TemporaryFolder folder_;
};

}  // namespace laconic
