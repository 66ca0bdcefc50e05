#include "laconic/run/run_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <sstream>
#include <thread>
#include <utility>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/host_name.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/descriptor.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPause{10};
// Somebody may be looking at the file, or about to replace it, for an instant.
constexpr int kTriesInDoubt = 20;
// The kernel first takes back the memory of a process, then its files and the flock.
constexpr int kTriesOfEnding = 1000;

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool is_still_at(const std::string& path, int descriptor) {
  struct stat there {
  }, ours{};
  return ::stat(path.c_str(), &there) == 0 && ::fstat(descriptor, &ours) == 0 &&
         there.st_ino == ours.st_ino && there.st_dev == ours.st_dev;
}

std::string content_of_file(int descriptor) {
  std::string text(4096, '\0');
  const ssize_t count = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

// A file system that has no such locks says so: then nobody can be seen to hold one.
bool take_flock(int descriptor) {
  return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

// Folders that are not there yet, outermost first.
std::vector<std::string> missing_folders(const fs::path& folder) {
  std::vector<std::string> missing;
  for (fs::path at = folder; !at.empty() && !fs::exists(at); at = at.parent_path())
    missing.insert(missing.begin(), at.string());
  return missing;
}

std::string describe_owner(const LockOwner& owner) {
  return fmt::format("process {} on {}", owner.process, printable(owner.host));
}

// Many machines may have such a name.
bool is_anonymous(const std::string& host) {
  return host.empty() || host == "unknown-host" || host.starts_with("localhost");
}

[[noreturn]] void refuse_folder(const std::string& path, const std::optional<LockOwner>& owner,
                                LockState state, const LockOwner& me) {
  const std::string folder = fs::path(path).parent_path().string();
  if (!owner)
    throw ConfigError({{folder, fmt::format("another run has it, and {} does not say which: wait "
                                            "for it, or choose another run.folder",
                                            path)}});
  const std::string who = describe_owner(*owner), since = printable(owner->since);
  if (state == LockState::ending)
    throw ConfigError(
        {{folder, fmt::format("{}, which has trained there since {}, was killed or ends, but has "
                              "not gone in {} s: wait for it, or choose another run.folder",
                              who, since, kTriesOfEnding * kPause.count() / 1000)}});
  if (state == LockState::held)
    throw ConfigError(
        {{folder, fmt::format("{} has trained there since {}: wait for it, stop it (kill {}), or "
                              "choose another run.folder",
                              who, since, owner->process)}});
  throw ConfigError(
      {{folder, fmt::format("{} began to train there on {}; from {} it cannot be seen whether it "
                            "still does. If it has ended, remove {} and start again; if not, wait "
                            "for it, or choose another run.folder",
                            who, since, me.host, path)}});
}

struct SeenLock {
  std::optional<LockOwner> owner;
  LockVerdict verdict;
  bool is_certain = true;  // false: looking again may show something else
};

// What the open lock file says. `descriptor` holds its flock afterwards, if nobody else does.
SeenLock look_at(int descriptor, const LockOwner& me) {
  SeenLock seen;
  const bool is_locked = !take_flock(descriptor);
  seen.owner = parse_lock(content_of_file(descriptor));
  LockFacts facts{.me = me, .started = std::nullopt, .is_locked = false};
  if (seen.owner) {
    facts.process = state_of_process(seen.owner->process);
    facts.started = start_of_process(seen.owner->process);
  }
  const LockVerdict without = judge_lock(seen.owner, facts);
  facts.is_locked = is_locked;
  seen.verdict = judge_lock(seen.owner, facts);
  // The flock of a dead process may be that of somebody who looks, as we do; and a damaged file may
  // be one that is being written where link() is not known.
  seen.is_certain = seen.owner && without.state == seen.verdict.state;
  return seen;
}

// The words of /proc/PROCESS/stat behind its name, which may hold anything: state, parent, ...
std::vector<std::string> stat_of_process(std::int64_t process) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", process));
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

// Whether SIGKILL was sent to it. The kernel keeps that in the set of signals that wait for the
// whole process until it is gone.
bool is_killed(std::int64_t process) {
  std::ifstream file(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("ShdPnd:") || line.starts_with("SigPnd:"))
      if ((std::strtoull(line.c_str() + 7, nullptr, 16) >> (SIGKILL - 1) & 1) != 0) return true;
  return false;
}

}  // namespace

// Looks again and again at a lock that may change by itself.
class LockPatience {
 public:
  // Pauses, and returns true, where looking again may show something else.
  bool allows(const SeenLock& seen) {
    const bool is_ending = seen.verdict.state == LockState::ending;
    int& tries = is_ending ? tries_of_ending_ : tries_in_doubt_;
    if ((seen.is_certain && !is_ending) || tries == 0) return false;
    --tries;
    std::this_thread::sleep_for(kPause);
    return true;
  }

 private:
  int tries_in_doubt_ = kTriesInDoubt;
  int tries_of_ending_ = kTriesOfEnding;
};

std::optional<std::int64_t> start_of_process(std::int64_t process) {
  constexpr std::size_t kStart = 19;  // field 22 of proc(5), whose first two are not here
  const std::vector<std::string> stat = stat_of_process(process);
  if (stat.size() <= kStart) return std::nullopt;
  return std::strtoll(stat[kStart].c_str(), nullptr, 10);
}

ProcessState state_of_process(std::int64_t process) {
  constexpr std::size_t kFlags = 6;        // field 9
  constexpr unsigned long kExiting = 0x4;  // PF_EXITING of the kernel
  const std::vector<std::string> stat = stat_of_process(process);
  if (stat.size() <= kFlags) return ProcessState::living;
  if (stat[0] == "Z" || stat[0] == "X") return ProcessState::zombie;
  const bool is_exiting = (std::strtoul(stat[kFlags].c_str(), nullptr, 10) & kExiting) != 0;
  return is_exiting || is_killed(process) ? ProcessState::ending : ProcessState::living;
}

LockOwner this_process() {
  return {.host = host_name(),
          .boot = first_line("/proc/sys/kernel/random/boot_id"),
          .process = ::getpid(),
          .started = start_of_process(::getpid()).value_or(0),
          .since = utc_now()};
}

std::string to_text(const LockOwner& owner) {
  return nlohmann::ordered_json{{"host", owner.host},       {"process", owner.process},
                                {"started", owner.started}, {"boot", owner.boot},
                                {"since", owner.since},     {"run", owner.run_id},
                                {"attempt", owner.attempt}}
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

std::optional<LockOwner> parse_lock(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  for (const char* key : {"host", "boot", "since", "run"})
    if (!json.contains(key) || !json[key].is_string()) return std::nullopt;
  for (const char* key : {"process", "started", "attempt"})
    if (!json.contains(key) || !json[key].is_number_integer()) return std::nullopt;
  return LockOwner{.host = json["host"],
                   .boot = json["boot"],
                   .process = json["process"],
                   .started = json["started"],
                   .since = json["since"],
                   .run_id = json["run"],
                   .attempt = json["attempt"]};
}

LockVerdict judge_lock(const std::optional<LockOwner>& owner, const LockFacts& facts) {
  const bool is_owner = owner && !owner->boot.empty() && owner->boot == facts.me.boot &&
                        facts.started == owner->started;
  if (is_owner && facts.process == ProcessState::ending) return {LockState::ending, ""};
  if (is_owner && facts.process == ProcessState::zombie) {
    if (facts.is_locked) return {LockState::ending, ""};
    return {LockState::stale, "the process has ended"};
  }
  if (facts.is_locked) return {LockState::held, ""};
  if (!owner) return {LockState::stale, "the file is damaged, and nobody holds it"};
  const LockOwner& me = facts.me;
  // torchrun calls every run "none" that nobody has named.
  if (!owner->run_id.empty() && owner->run_id != "none" && owner->run_id == me.run_id &&
      owner->attempt < me.attempt)
    return {LockState::stale, fmt::format("it was start {} of the same run, and this is start {}",
                                          owner->attempt + 1, me.attempt + 1)};
  const bool is_same_boot = !owner->boot.empty() && owner->boot == me.boot;
  const bool is_same_host = owner->host == me.host && !is_anonymous(me.host);
  if (!is_same_boot && !is_same_host) return {LockState::elsewhere, ""};
  if (!is_same_boot && !owner->boot.empty() && !me.boot.empty())
    return {LockState::stale, "the machine was started again since"};
  if (!facts.started) return {LockState::stale, "the process has ended"};
  if (*facts.started != owner->started)
    return {LockState::stale, "the process has ended, and another one has its number now"};
  return {LockState::held, ""};
}

std::string lock_path(const std::string& run_folder) {
  return (fs::path(run_folder) / "run.lock").string();
}

RunLock::RunLock(const std::string& run_folder, LockOwner me)
    : path_(lock_path(run_folder)), me_(std::move(me)), made_(missing_folders(run_folder)) {
  std::error_code error;
  fs::create_directories(run_folder, error);
  if (error) throw SystemError(run_folder, "create", error.value());
  std::random_device device;
  const std::string temporary = fmt::format("{}.{}-{:08x}", path_, ::getpid(), device());
  try {
    acquire(temporary);
  } catch (...) {
    ::unlink(temporary.c_str());
    if (descriptor_ >= 0) ::close(descriptor_);
    for (auto made = made_.rbegin(); made != made_.rend(); ++made) ::rmdir(made->c_str());
    throw;
  }
}

void RunLock::acquire(const std::string& temporary) {
  descriptor_ = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw SystemError(temporary, "create", errno);
  take_flock(descriptor_);  // before anybody can see the file
  const std::string text = to_text(me_);
  write_all(descriptor_, std::as_bytes(std::span(text.data(), text.size())), temporary);
  if (::fsync(descriptor_) != 0) throw SystemError(temporary, "fsync", errno);
  LockPatience patience;
  while (!examine(temporary, patience)) {
  }
}

// True when the lock is ours; false: look again.
bool RunLock::examine(const std::string& temporary, LockPatience& patience) {
  if (::link(temporary.c_str(), path_.c_str()) == 0) {
    ::unlink(temporary.c_str());
    return true;
  }
  // Some file systems have no hard links.
  if (errno != EEXIST &&
      ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0)
    return true;
  if (errno != EEXIST) throw SystemError(path_, "create", errno);
  const Descriptor there(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (there.get() < 0 && errno == ENOENT) return false;
  if (there.get() < 0) throw SystemError(path_, "open", errno);
  const SeenLock seen = look_at(there.get(), me_);
  if (!is_still_at(path_, there.get())) return false;
  if (patience.allows(seen)) return false;
  if (seen.verdict.state != LockState::stale)
    refuse_folder(path_, seen.owner, seen.verdict.state, me_);
  // Its flock is ours, so nobody else is doing the same.
  if (::rename(temporary.c_str(), path_.c_str()) != 0) throw SystemError(path_, "rename to", errno);
  note_ = fmt::format("{}: taking over the lock{}: {}", path_,
                      seen.owner ? fmt::format(" of {}, of {}", describe_owner(*seen.owner),
                                               printable(seen.owner->since))
                                 : "",
                      seen.verdict.why);
  return true;
}

RunLock::~RunLock() {
  if (is_still_at(path_, descriptor_)) ::unlink(path_.c_str());
  ::close(descriptor_);
  for (auto made = made_.rbegin(); made != made_.rend(); ++made)
    if (::rmdir(made->c_str()) != 0) break;
}

std::string RunLock::token() const {
  return fmt::format("{}-{}-{}", me_.boot, me_.process, me_.started);
}

bool holds_lock_for(const std::string& run_folder, const std::string& token) {
  const std::optional<LockOwner> owner = parse_lock(first_line(lock_path(run_folder)));
  return owner && fmt::format("{}-{}-{}", owner->boot, owner->process, owner->started) == token;
}

void require_unlocked(const std::string& run_folder, const LockOwner& me) {
  const std::string path = lock_path(run_folder);
  for (LockPatience patience;;) {
    // Some file systems lock only what may be written.
    const int writable = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    const Descriptor there(writable >= 0 ? writable : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (there.get() < 0) return;  // nobody has it, or whoever takes it will say why not
    const SeenLock seen = look_at(there.get(), me);
    if (seen.verdict.state == LockState::stale) return;
    if (!patience.allows(seen)) refuse_folder(path, seen.owner, seen.verdict.state, me);
  }
}

}  // namespace laconic
