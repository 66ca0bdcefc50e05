// tests/processes/process.hpp — another program, started, watched and ended.
//
// What it prints goes to two files, so that it never waits for us. A process
// that is still there when its object goes is killed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace laconic {

struct ProcessSpec {
  std::vector<std::string> words;        // the program and its arguments
  std::string folder;                    // to start in, and where stdout and stderr are kept
  std::uint64_t largest_file_bytes = 0;  // RLIMIT_FSIZE; 0: none
  std::uint64_t memory_bytes = 0;        // RLIMIT_AS; 0: none
  std::uint64_t data_bytes = 0;          // RLIMIT_DATA, memory that no file backs; 0: none
  std::map<std::string, std::string> environment = {};  // beside what we have ourselves
  std::string input = {};                               // a file, its standard input; empty: ours
};

struct ProcessResult {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;      // that one
  std::string out;
  std::string err;
};

std::string to_text(const ProcessResult& outcome);  // for messages

class Process {
 public:
  explicit Process(const ProcessSpec& spec);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(int signal) const;
  pid_t pid() const { return pid_; }
  bool has_ended();
  // Kills it, and throws, when the time is up.
  ProcessResult wait(double seconds = 60);

 private:
  std::string folder_;
  pid_t pid_ = 0;
  int status_ = 0;
  bool has_ended_ = false;
};

// What a file holds; empty when there is none.
std::string read_text(const std::string& path);

bool contains(const std::string& text, const std::string& part);

}  // namespace laconic
