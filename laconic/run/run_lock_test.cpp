#include "laconic/run/run_lock.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "laconic/base/error.hpp"
#include "laconic/file/test_folder.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_lock(const std::string& folder, const std::string& text) {
  fs::create_directories(folder);
  std::ofstream(lock_path(folder), std::ios::binary) << text;
}

// A process that was, and is no more.
LockOwner dead_owner() {
  LockOwner owner = this_process();
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  owner.process = child;
  owner.started = start_of_process(child).value();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return owner;
}

// Our parent lives longer than we do.
LockOwner living_owner() {
  LockOwner owner = this_process();
  owner.process = ::getppid();
  owner.started = start_of_process(::getppid()).value();
  return owner;
}

std::string refusal_to_lock(const std::string& folder) {
  try {
    const RunLock lock(folder);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(RunLock, IsThereWhileARunIsAndNamesItsOwner) {
  const TemporaryFolder folder;
  {
    const RunLock lock(folder / "a");
    EXPECT_EQ(lock.note(), "");
    const LockOwner owner = parse_lock(read_all(lock_path(folder / "a"))).value();
    EXPECT_EQ(owner.process, ::getpid());
    EXPECT_EQ(owner.started, start_of_process(::getpid()));
    EXPECT_EQ(owner.host, this_process().host);
    EXPECT_FALSE(owner.boot.empty());
    EXPECT_TRUE(holds_lock_for(folder / "a", lock.token()));
    EXPECT_FALSE(holds_lock_for(folder / "a", lock.token() + "1"));
    EXPECT_FALSE(holds_lock_for(folder / "b", lock.token()));
  }
  EXPECT_FALSE(fs::exists(lock_path(folder / "a")));
}

TEST(RunLock, FoldersThatWereMadeForItGoAgainUnlessTheyAreUsed) {
  const TemporaryFolder folder;
  { const RunLock lock(folder / "runs/a"); }
  EXPECT_FALSE(fs::exists(folder / "runs"));
  {
    const RunLock lock(folder / "runs/a");
    std::ofstream(folder / "runs/a/log.jsonl") << "x";
  }
  EXPECT_TRUE(fs::exists(folder / "runs/a/log.jsonl"));
  fs::remove(folder / "runs/a/log.jsonl");
  { const RunLock lock(folder / "runs/a"); }
  EXPECT_TRUE(fs::exists(folder / "runs/a"));  // somebody else's
  write_lock(folder / "other", to_text(living_owner()));
  EXPECT_NE(refusal_to_lock(folder / "other"), "");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "other"), {}), 1);  // nothing is left
}

TEST(RunLock, OfALivingOwnerIsRefusedByName) {
  const TemporaryFolder folder;
  const LockOwner owner = living_owner();
  write_lock(folder.path(), to_text(owner));
  const std::string refusal = refusal_to_lock(folder.path());
  EXPECT_TRUE(contains(refusal, "process " + std::to_string(owner.process) + " on " + owner.host))
      << refusal;
  EXPECT_TRUE(contains(refusal, owner.since)) << refusal;
  EXPECT_EQ(read_all(lock_path(folder.path())), to_text(owner));
  EXPECT_THROW(require_unlocked(folder.path()), ConfigError);
}

TEST(RunLock, OfADeadOwnerIsTakenOverAndSaysSo) {
  const TemporaryFolder folder;
  const LockOwner owner = dead_owner();
  write_lock(folder.path(), to_text(owner));
  require_unlocked(folder.path());
  EXPECT_EQ(read_all(lock_path(folder.path())), to_text(owner));  // looking changes nothing
  const RunLock lock(folder.path());
  EXPECT_TRUE(
      contains(lock.note(), "taking over the lock of process " + std::to_string(owner.process)))
      << lock.note();
  EXPECT_TRUE(contains(lock.note(), "the process has ended")) << lock.note();
  EXPECT_EQ(parse_lock(read_all(lock_path(folder.path())))->process, ::getpid());
}

// Starts a process that takes the folder's lock, and returns when it has it.
template <class F>
pid_t start_owner(const std::string& folder, F&& then) {
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(folder);
    then();
    ::_exit(0);
  }
  while (parse_lock(read_all(lock_path(folder))).value_or(LockOwner()).process != child)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return child;
}

void wait_for_zombie(pid_t child) {
  while (state_of_process(child) != ProcessState::zombie)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Its parent may never ask for it: the number stays, and means nothing.
TEST(RunLock, OfAKilledOwnerThatNobodyHasWaitedForIsTakenOver) {
  const TemporaryFolder folder;
  const pid_t child = start_owner(folder.path(), [] {
    for (;;) ::pause();
  });
  EXPECT_EQ(state_of_process(child), ProcessState::living);
  EXPECT_NE(refusal_to_lock(folder.path()), "");
  ::kill(child, SIGKILL);
  wait_for_zombie(child);
  require_unlocked(folder.path());
  const RunLock lock(folder.path());
  EXPECT_TRUE(contains(lock.note(), "the process has ended")) << lock.note();
  ::waitpid(child, nullptr, 0);
}

// A launcher was killed and started again at once: its rank 0 takes a while to die. Here the first
// thread is gone and another one holds the lock for half a second.
TEST(RunLock, OfAnOwnerThatIsAboutToGoIsWaitedFor) {
  for (const bool only_looks : {true, false}) {
    const TemporaryFolder folder;
    const pid_t child = start_owner(folder.path(), [] {
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        ::_exit(0);
      }).detach();
      ::syscall(SYS_exit, 0);  // of this thread alone
    });
    wait_for_zombie(child);
    if (only_looks)
      require_unlocked(folder.path());
    else
      EXPECT_TRUE(contains(RunLock(folder.path()).note(), "the process has ended"));
    ::waitpid(child, nullptr, 0);
  }
}

TEST(RunLock, AReusedProcessIdIsRecognisedByItsStart) {
  const TemporaryFolder folder;
  LockOwner owner = living_owner();
  --owner.started;
  write_lock(folder.path(), to_text(owner));
  const RunLock lock(folder.path());
  EXPECT_TRUE(contains(lock.note(), "another one has its number now")) << lock.note();
}

TEST(RunLock, OfAnotherHostIsNotJudgedByItsProcess) {
  const TemporaryFolder folder;
  LockOwner owner = dead_owner();
  owner.host = "elsewhere";
  owner.boot = "another";
  write_lock(folder.path(), to_text(owner));
  const std::string refusal = refusal_to_lock(folder.path());
  EXPECT_TRUE(contains(refusal, "on elsewhere")) << refusal;
  EXPECT_TRUE(contains(refusal, "If it has ended, remove " + lock_path(folder.path()))) << refusal;
  EXPECT_THROW(require_unlocked(folder.path()), ConfigError);
  fs::remove(lock_path(folder.path()));
  EXPECT_EQ(refusal_to_lock(folder.path()), "");
}

TEST(RunLock, ADamagedFileThatNobodyHoldsIsTakenOver) {
  const std::string whole = to_text(living_owner());
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("\0\xff", 2), whole.substr(0, 20)}) {
    const TemporaryFolder folder;
    write_lock(folder.path(), text);
    const RunLock lock(folder.path());
    EXPECT_TRUE(contains(lock.note(), "damaged")) << lock.note();
  }
}

// As of a process that another container hides, or whose file was damaged since.
TEST(RunLock, WhoHoldsTheFileLivesWhateverItSays) {
  for (const std::string& text : {to_text(dead_owner()), std::string("{")}) {
    const TemporaryFolder folder;
    write_lock(folder.path(), text);
    const int held = ::open(lock_path(folder.path()).c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(::flock(held, LOCK_EX | LOCK_NB), 0);
    EXPECT_NE(refusal_to_lock(folder.path()), "");
    EXPECT_THROW(require_unlocked(folder.path()), ConfigError);
    EXPECT_EQ(read_all(lock_path(folder.path())), text);
    ::close(held);
    EXPECT_EQ(refusal_to_lock(folder.path()), "");
  }
}

TEST(RunLock, OfManyThatBeginAtOnceExactlyOneGetsIt) {
  constexpr int kMany = 8;
  const std::string stale = to_text(dead_owner());
  for (int round = 0; round < 30; ++round) {
    const TemporaryFolder folder;
    if (round % 3 == 1) write_lock(folder / "a", stale);
    if (round % 3 == 2) write_lock(folder / "a", "");
    std::barrier begin(kMany), all_have_tried(kMany);
    std::atomic<int> winners = 0, refused = 0;
    std::vector<std::jthread> threads;
    for (int i = 0; i < kMany; ++i)
      threads.emplace_back([&] {
        begin.arrive_and_wait();
        try {
          const RunLock lock(folder / "a");
          ++winners;
          all_have_tried.arrive_and_wait();
        } catch (const ConfigError&) {
          ++refused;
          all_have_tried.arrive_and_wait();
        }
      });
    threads.clear();
    EXPECT_EQ(winners, 1) << round;
    EXPECT_EQ(refused, kMany - 1) << round;
  }
}

TEST(LockVerdict, FollowsFromWhatCanBeSeen) {
  const LockOwner me{.host = "alpha", .boot = "b1", .process = 7, .started = 70, .since = "now"};
  const auto state_of = [&](LockOwner owner, std::optional<std::int64_t> started,
                            LockOwner who = {}, bool is_locked = false) {
    if (who.host.empty()) who = me;
    return judge_lock(owner, {.me = who, .started = started, .is_locked = is_locked}).state;
  };
  LockOwner owner = me;
  EXPECT_EQ(state_of(owner, 70), LockState::held);
  EXPECT_EQ(state_of(owner, 71), LockState::stale);
  EXPECT_EQ(state_of(owner, std::nullopt), LockState::stale);
  EXPECT_EQ(state_of(owner, std::nullopt, me, true), LockState::held);
  for (const bool is_locked : {false, true}) {
    const auto state_when = [&](ProcessState process, std::int64_t started) {
      return judge_lock(owner,
                        {.me = me, .started = started, .is_locked = is_locked, .process = process})
          .state;
    };
    EXPECT_EQ(state_when(ProcessState::ending, 70), LockState::ending);
    EXPECT_EQ(state_when(ProcessState::zombie, 70),
              is_locked ? LockState::ending : LockState::stale);
    // Not the owner.
    EXPECT_EQ(state_when(ProcessState::ending, 71), is_locked ? LockState::held : LockState::stale);
  }
  owner.boot = "b0";  // before the machine was started again
  EXPECT_EQ(state_of(owner, 70), LockState::stale);
  owner.host = "beta";
  EXPECT_EQ(state_of(owner, 70), LockState::elsewhere);
  EXPECT_EQ(state_of(owner, std::nullopt), LockState::elsewhere);
  owner.boot = "b1";  // another container of this machine
  EXPECT_EQ(state_of(owner, std::nullopt), LockState::stale);
  LockOwner nameless = me;
  nameless.host = "localhost";
  owner.host = "localhost";
  owner.boot = "b0";
  EXPECT_EQ(state_of(owner, std::nullopt, nameless), LockState::elsewhere);
}

TEST(LockVerdict, ALaterStartOfTheSameRunMayBeOnAnotherMachine) {
  const LockOwner before{.host = "beta",
                         .boot = "b2",
                         .process = 7,
                         .started = 70,
                         .since = "",
                         .run_id = "job",
                         .attempt = 1};
  LockOwner me{.host = "alpha",
               .boot = "b1",
               .process = 9,
               .started = 90,
               .since = "",
               .run_id = "job",
               .attempt = 2};
  const auto state = [&] { return judge_lock(before, {.me = me}).state; };
  EXPECT_EQ(state(), LockState::stale);
  for (const int attempt : {0, 1}) {
    me.attempt = attempt;
    EXPECT_EQ(state(), LockState::elsewhere) << attempt;
  }
  me.attempt = 2;
  me.run_id = "other";
  EXPECT_EQ(state(), LockState::elsewhere);
  LockOwner unnamed = before;
  unnamed.run_id = me.run_id = "none";
  EXPECT_EQ(judge_lock(unnamed, {.me = me}).state, LockState::elsewhere);
}

}  // namespace
}  // namespace laconic
