// run/run_lock.hpp — one run in a folder at a time.
//
// FOLDER/run.lock says who trains there: host, process, and when that process began, so that a
// process id which was given to somebody else since is recognised. Besides, its owner holds an
// flock() on the file, which the kernel takes back when the owner dies, whatever ended it. Either
// sign of life counts. Another machine's processes cannot be seen, so its lock is believed. A
// process that was killed shows both for a while, on a busy machine or with much memory: it is
// waited for.
//
// The file appears whole, by link(), and a stale one is replaced by rename() under its own flock:
// of several that begin at the same instant exactly one gets it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace laconic {

struct LockOwner {
  std::string host;
  std::string boot;          // the kernel's id of this start of the machine; empty: unknown
  std::int64_t process = 0;  // its id
  std::int64_t started = 0;  // clock ticks from the start of the machine to that of the process
  std::string since;         // UTC, for people
  std::string run_id = {};   // that a launcher gave; may be empty
  std::int64_t attempt = 0;  // starts of that run before this one
  bool operator==(const LockOwner&) const = default;
};

LockOwner this_process();
// When a process of this machine was started; nothing when there is none.
std::optional<std::int64_t> start_of_process(std::int64_t process);

std::string to_text(const LockOwner& owner);                 // what the file holds
std::optional<LockOwner> parse_lock(std::string_view text);  // nothing: damaged

enum class ProcessState {
  living,
  ending,  // killed, or about to go by itself, and not gone
  zombie,  // gone, but its parent has not asked how; threads of it may still end
};
ProcessState state_of_process(std::int64_t process);

// What can be seen from here.
struct LockFacts {
  LockOwner me;
  std::optional<std::int64_t> started;          // start_of_process(owner.process)
  bool is_locked = false;                       // somebody holds the flock
  ProcessState process = ProcessState::living;  // state_of_process(owner.process)
};

enum class LockState {
  held,       // by a living process
  ending,     // by a process that is about to go
  stale,      // by nobody any more
  elsewhere,  // by a process that cannot be seen from here
};
struct LockVerdict {
  LockState state = LockState::held;
  std::string why;  // where it is stale
};
// Pure. No owner: the file is damaged.
LockVerdict judge_lock(const std::optional<LockOwner>& owner, const LockFacts& facts);

std::string lock_path(const std::string& run_folder);

class LockPatience;

class RunLock {
 public:
  // Makes the folder if need be, and waits for an owner that ends, ten seconds at most. Throws
  // ConfigError when somebody else has the lock, SystemError.
  explicit RunLock(const std::string& run_folder, LockOwner me = this_process());
  // Removes the file, and folders that were made for it and are empty.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  const std::string& note() const { return note_; }  // which lock was taken over; may be empty
  // For a process that works for this one: holds_lock_for() there.
  std::string token() const;

 private:
  void acquire(const std::string& temporary);
  bool examine(const std::string& temporary, LockPatience& patience);

  std::string path_;
  LockOwner me_;
  std::vector<std::string> made_;  // folders, outermost first
  int descriptor_ = -1;
  std::string note_;
};

// The environment variable by which a launcher hands its token to the ranks it starts.
inline constexpr const char* kLockVariable = "LACONIC_RUN_LOCK";

// Whether the folder's lock is that of the process which gave us `token`.
bool holds_lock_for(const std::string& run_folder, const std::string& token);

// Throws ConfigError when another run is known to have the lock. Waits as RunLock does. Changes
// nothing.
void require_unlocked(const std::string& run_folder, const LockOwner& me = this_process());

}  // namespace laconic
