// base/error.hpp — the few kinds of failure, told apart by who has to act.
//
// There are no status codes: libtorch throws anyway, and two channels would
// meet in every function (docs/adr/0004). They end in cli/guard.cpp, which prints
// them and turns them into the exit code.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "laconic/base/problem.hpp"

namespace laconic {

inline constexpr int kExitFailure = 1;   // the work failed
inline constexpr int kExitRefused = 2;   // the request or an input file is not acceptable
inline constexpr int kExitPeerLost = 3;  // another rank has gone; restart from the checkpoint

// The user asked for something impossible. Carries every reason.
class ConfigError : public std::runtime_error {
 public:
  explicit ConfigError(Problems problems);
  explicit ConfigError(std::string what);
  const Problems& problems() const { return problems_; }

 private:
  Problems problems_;
};

// Throws ConfigError unless there are none.
void refuse(const Problems& problems);

// A file is missing, truncated, damaged or not what it should be. The message
// names the file, the field and the remedy, in that order.
class FileError : public std::runtime_error {
 public:
  FileError(const std::string& path, const std::string& field, const std::string& what,
            const std::string& remedy = "");
};

// The system refused to read or write: no space, no permission.
class SystemError : public std::runtime_error {
 public:
  SystemError(const std::string& path, const std::string& act, int error_number);
};

// Bytes that came over a wire are not what our writer makes. `offset` counts from the start of what
// was being read, and the message names the field: "payload.scale at byte 61: 7f800000 is ...".
class WireError : public std::runtime_error {
 public:
  WireError(std::size_t offset, std::string field, const std::string& what);
  // The same, with whose bytes they were in front: "dp.gradient 2 #17 from rank 3: CRC-32C at ...".
  WireError(const std::string& whose, const WireError& error);
  std::size_t offset() const { return offset_; }
  const std::string& field() const { return field_; }

 private:
  std::size_t offset_;
  std::string field_;
};

// Another rank has gone, or this one is going: `peer` says who. The step is lost, the run can be
// resumed from its last checkpoint.
class PeerLost : public std::runtime_error {
 public:
  PeerLost(int peer, const std::string& what);
  int peer() const { return peer_; }

 private:
  int peer_;
};

// A wait reached its deadline; `peer` is whom it waited for, -1 when nobody in particular.
class Timeout : public std::runtime_error {
 public:
  Timeout(int peer, const std::string& what);
  int peer() const { return peer_; }

 private:
  int peer_;
};

[[noreturn]] void assertion_failed(const char* condition, const std::string& values,
                                   const char* file, int line);

}  // namespace laconic

// We are wrong: on in every build type. The second argument is a string with the values involved.
// (Not std::source_location: clang 14, which lints and fuzzes this code, has none.)
#define LACONIC_ASSERT(condition, values)                                    \
  do {                                                                       \
    if (!(condition)) [[unlikely]]                                           \
      ::laconic::assertion_failed(#condition, (values), __FILE__, __LINE__); \
  } while (false)
