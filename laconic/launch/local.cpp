#include "laconic/launch/local.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>

#include "laconic/base/clock.hpp"
#include "laconic/base/error.hpp"
#include "laconic/base/text.hpp"
#include "laconic/file/append_file.hpp"
#include "laconic/file/descriptor.hpp"
#include "laconic/launch/child.hpp"
#include "laconic/launch/fork_server.hpp"
#include "laconic/launch/line.hpp"
#include "laconic/launch/restart.hpp"

namespace laconic {

namespace {

namespace fs = std::filesystem;

// SIGINT, SIGTERM, SIGHUP and SIGCHLD as something to read.
class Signals {
 public:
  Signals() {
    std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error that we clean up after
    std::signal(SIGCHLD, SIG_DFL);  // who starts us may ignore it, and nobody could be waited for
    sigset_t set;
    ::sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&set, signal);
    ::sigprocmask(SIG_BLOCK, &set, &before_);
    descriptor_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (descriptor_ < 0) throw SystemError("signals", "read", errno);
  }
  ~Signals() {
    ::close(descriptor_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return descriptor_; }

  // Everything that has come. Two at once are one: `timeout` and others send to a process and then
  // to its group, and a person needs longer.
  void take(Interruption& interruption) {
    signalfd_siginfo info;
    while (::read(descriptor_, &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      if (interruption.signal == 0) {
        interruption.signal = signal;
        since_first_ = Stopwatch();
      } else if (since_first_.seconds() > 0.25) {
        interruption.is_urgent = true;
      }
    }
  }

 private:
  sigset_t before_{};
  int descriptor_ = -1;
  Stopwatch since_first_;
};

// Where the lines of ranks, and our own, go.
class Voice {
 public:
  explicit Voice(const LaunchSpec& spec)
      : is_terminal_(spec.is_terminal), has_colour_(spec.has_colour) {}

  void pass_on(int rank, int descriptor, const std::string& line) const {
    const bool is_plain = rank == 0 && descriptor == STDOUT_FILENO;
    put(descriptor, (is_plain ? "" : line_prefix(rank, has_colour_)) + line + '\n');
  }
  void say(const std::string& text) const { put(STDERR_FILENO, "laconic: " + text + '\n'); }

  // Whether whoever read our standard output has gone, as `head` does.
  bool is_unread() const { return is_unread_; }

 private:
  // The bar of rank 0 may stand on the last line of a terminal; rank 0 will draw it again.
  void put(int descriptor, std::string text) const {
    if (descriptor == STDOUT_FILENO && is_unread_) return;
    if (is_terminal_) text.insert(0, "\r\033[K");
    try {
      write_all(descriptor, std::as_bytes(std::span<const char>(text)),
                descriptor == STDOUT_FILENO ? "standard output" : "standard error");
    } catch (const SystemError&) {
      if (!has_lost_reader(descriptor)) throw;
      if (descriptor == STDOUT_FILENO) is_unread_ = true;  // without standard error a run goes on
    }
  }

  bool is_terminal_;
  bool has_colour_;
  mutable bool is_unread_ = false;
};

// All that one rank prints, in a file. A run goes on without it: a folder in which nothing can be
// written is for the worker to complain of.
class RankLog {
 public:
  RankLog(const std::string& folder, int rank, std::string title)
      : path_(folder.empty() ? "" : fmt::format("{}/ranks/rank-{}.log", folder, rank)),
        title_(std::move(title)) {}

  void write(const std::string& line) {
    if (path_.empty()) return;
    try {
      if (!file_) open();
      file_->write(line + '\n');
    } catch (const std::exception&) {
      path_.clear();
    }
  }

 private:
  void open() {
    fs::create_directories(fs::path(path_).parent_path());
    file_ = std::make_unique<AppendFile>(path_);
    file_->write(title_);
  }

  std::string path_;
  std::string title_;
  std::unique_ptr<AppendFile> file_;
};

struct RankProcess {
  Child child;
  RankLog log;
  LineCutter output, error;
};

std::string ranks_in(const std::vector<int>& ranks) {
  std::vector<std::string> texts;
  for (const int rank : ranks) texts.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(texts, ", ");
}

constexpr std::size_t kMostComplaints = 1000;  // that we remember

// One life of all ranks, from their start until the last has ended.
class Attempt {
 public:
  Attempt(const LaunchSpec& spec, const Voice& voice, Signals& signals, Interruption& interruption)
      : spec_(spec), voice_(voice), signals_(signals), interruption_(interruption) {}

  void start(const std::vector<std::string>& words, const Environment& environment) {
    const std::string title =
        fmt::format("--- attempt {} of run {}, {}\n", environment.at("LACONIC_ATTEMPT"),
                    environment.at("LACONIC_RUN_ID"), utc_now());
    std::optional<ForkServer> server;
    if (spec_.serves_forks)
      server.emplace(ChildSpec{.program = spec_.program,
                               .words = words,
                               .environment = environment,
                               .input = spec_.input});
    for (int rank = 0; rank < spec_.ranks; ++rank)
      processes_.push_back({start_rank(rank, words, environment, server ? &*server : nullptr),
                            RankLog(spec_.log_folder, rank, title),
                            {},
                            {}});
    states_.resize(processes_.size());
  }

  RankStates run() {
    while (true) {
      signals_.take(interruption_);
      if (voice_.is_unread() && interruption_.signal == 0) {
        voice_.say("nobody reads standard output any more: the ranks finish their step and save");
        interruption_.signal = SIGTERM;
      }
      reap();
      const Decision decision = decide(states_, interruption_, clock_.seconds(), spec_.patience);
      if (decision.is_over) return states_;
      while (pressure_ < decision.pressure) press();
      wait(decision);
    }
  }

 private:
  Child start_rank(int rank, const std::vector<std::string>& words, const Environment& environment,
                   ForkServer* server) const {
    const std::string number = std::to_string(rank);
    const bool has_own_output = rank == 0 && spec_.is_terminal;
    Environment variables = {{"RANK", number}, {"LOCAL_RANK", number}};
    if (server != nullptr) return server->start(variables, has_own_output);
    variables.insert(environment.begin(), environment.end());
    ChildSpec child{spec_.program, words, std::move(variables), has_own_output, spec_.input};
    if (spec_.adapt) spec_.adapt(rank, child);
    return Child(child);
  }

  std::vector<int> running() const {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < states_.size(); ++i)
      if (!states_[i].has_ended) ranks.push_back(static_cast<int>(i));
    return ranks;
  }

  void reap() {
    for (std::size_t i = 0; i < processes_.size(); ++i)
      if (const auto status = processes_[i].child.take_status()) end(static_cast<int>(i), *status);
  }

  void end(int rank, int status) {
    RankProcess& process = processes_[static_cast<std::size_t>(rank)];
    pass_on(rank);  // what it said last
    process.child.close_output();
    process.child.close_error();
    for (const auto& [to, cutter] :
         {std::pair(STDOUT_FILENO, &process.output), std::pair(STDERR_FILENO, &process.error)})
      if (const std::string rest = cutter->take_rest(); !rest.empty()) pass_on_line(rank, to, rest);
    RankState& state = states_[static_cast<std::size_t>(rank)];
    state = {.has_ended = true,
             .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
             .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
             .ended_at = clock_.seconds(),
             .pressure = pressure_};
    if (has_failed(state, interruption_) && !has_told_) tell(rank, state);
  }

  void tell(int rank, const RankState& state) {
    has_told_ = true;
    voice_.say(fmt::format("rank {} {}", rank, describe(state)));
    if (const std::vector<int> others = running(); !others.empty())
      voice_.say(fmt::format("{} may take up to {} to stop", ranks_in(others),
                             human_seconds(grace_after(state, spec_.patience))));
  }

  // One step harder.
  void press() {
    pressure_ = static_cast<Pressure>(static_cast<int>(pressure_) + 1);
    // The second signal of a user skips what is between.
    if (interruption_.is_urgent && pressure_ < Pressure::kill) return;
    const int signal = pressure_ == Pressure::kill        ? SIGKILL
                       : pressure_ == Pressure::terminate ? SIGTERM
                                                          : interruption_.signal;
    if (pressure_ >= Pressure::terminate)
      voice_.say(fmt::format("{} {}", pressure_ == Pressure::kill ? "killing" : "ending",
                             ranks_in(running())));
    if (signal == 0) return;  // nobody interrupted us on the way to SIGTERM
    for (const RankProcess& process : processes_) process.child.send(signal);
  }

  void wait(const Decision& decision) {
    std::vector<pollfd> waited = {{signals_.descriptor(), POLLIN, 0}};
    for (const RankProcess& process : processes_)
      for (const int descriptor : {process.child.output(), process.child.error()})
        if (descriptor >= 0) waited.push_back({descriptor, POLLIN, 0});
    int milliseconds = -1;
    if (decision.ask_again_at)
      milliseconds = static_cast<int>(
          std::ceil(std::max(0.0, *decision.ask_again_at - clock_.seconds()) * 1000));
    ::poll(waited.data(), waited.size(), milliseconds);
    for (int rank = 0; rank < spec_.ranks; ++rank) pass_on(rank);
  }

  void pass_on(int rank) {
    Child& child = processes_[static_cast<std::size_t>(rank)].child;
    if (!pass_on_from(rank, child.output(), STDOUT_FILENO)) child.close_output();
    if (!pass_on_from(rank, child.error(), STDERR_FILENO)) child.close_error();
  }

  // False when no more will come. Takes all that a pipe holds, but not for ever from a rank that
  // prints faster than we do: signals and other ranks want their turn.
  bool pass_on_from(int rank, int from, int to) {
    if (from < 0) return true;
    RankProcess& process = processes_[static_cast<std::size_t>(rank)];
    LineCutter& cutter = to == STDOUT_FILENO ? process.output : process.error;
    char buffer[16 << 10];
    for (int reads = 0; reads < 64; ++reads) {
      const ssize_t count = ::read(from, buffer, sizeof buffer);
      if (count <= 0) return count < 0 && (errno == EAGAIN || errno == EINTR);
      const std::string_view bytes(buffer, static_cast<std::size_t>(count));
      for (const std::string& line : cutter.take(bytes)) pass_on_line(rank, to, line);
    }
    return true;
  }

  void pass_on_line(int rank, int to, const std::string& line) {
    processes_[static_cast<std::size_t>(rank)].log.write(line);
    if (to == STDOUT_FILENO || !is_echo(rank, line)) voice_.pass_on(rank, to, line);
  }

  // What all ranks complain of in the same words is told once; the logs have the rest.
  bool is_echo(int rank, const std::string& line) {
    const bool tells_once = spec_.tells_once || !spec_.log_folder.empty();
    if (!tells_once || complaints_.size() >= kMostComplaints) return false;
    return complaints_.emplace(line, rank).first->second != rank;
  }

  const LaunchSpec& spec_;
  const Voice& voice_;
  Signals& signals_;
  Interruption& interruption_;
  Stopwatch clock_;
  std::vector<RankProcess> processes_;
  RankStates states_;
  std::map<std::string, int> complaints_;  // lines, and the rank that was first with each
  Pressure pressure_ = Pressure::none;
  bool has_told_ = false;
};

std::string random_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

Environment environment_of(const LaunchSpec& spec, int port, const std::string& run_id,
                           int attempt) {
  Environment environment = spec.environment;
  environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(spec.ranks);
  environment["MASTER_ADDR"] = "127.0.0.1";
  environment["MASTER_PORT"] = std::to_string(port);
  environment["LACONIC_RUN_ID"] = run_id;
  environment["LACONIC_ATTEMPT"] = std::to_string(attempt);
  return environment;
}

void tell_ends(const Voice& voice, const RankStates& states, const Verdict& verdict) {
  if (verdict.cause < 0) return;
  std::string text = to_text(states, verdict);
  text.pop_back();
  voice.say("how the ranks ended:\n" + text);
  if (states[static_cast<std::size_t>(verdict.cause)].signal == SIGKILL)
    voice.say("signal 9 that nobody has sent comes from a system short of memory (see dmesg)");
}

bool is_free(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) throw SystemError("socket", "open", errno);
  const int yes = 1;  // connections of a run that has just ended do not count
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = INADDR_ANY;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const bool is_free = ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  ::close(socket);
  return is_free;
}

// An abstract socket with the name of the port, which only one process of a network namespace can
// have; -1 when another has it.
int try_to_reserve(int port) {
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) throw SystemError("socket", "open", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("laconic-port-{}", port);
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);  // the first byte stays 0: abstract
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0) return socket;
  ::close(socket);
  return -1;
}

}  // namespace

int find_free_port() {
  return ReservedPort().number();
}

ReservedPort::ReservedPort() {
  std::random_device device;  // launchers that start at the same moment must not look in order
  for (int tries = 0; tries < 1000; ++tries) {
    number_ = 20000 + static_cast<int>(device() % 12000);
    reservation_ = try_to_reserve(number_);
    if (reservation_ >= 0 && is_free(number_)) return;
    if (reservation_ >= 0) ::close(reservation_);
  }
  throw SystemError("a port between 20000 and 32000", "find free", EADDRINUSE);
}

ReservedPort::~ReservedPort() {
  ::close(reservation_);
}

int launch_local(const LaunchSpec& spec) {
  // Rank 0 would find out too, but the others would talk to whoever is there. Ranks that are
  // adapted may meet in another network.
  if (spec.port > 0 && !spec.adapt && !is_free(spec.port))
    throw ConfigError({{"network.port",
                        fmt::format("{} on this machine is in use, perhaps by another run: choose "
                                    "another, or 0 for any",
                                    spec.port)}});
  const Voice voice(spec);
  Signals signals;
  Interruption interruption;
  const SavedCheckpoints before = saved_checkpoints(spec.checkpoints_folder);
  const std::string run_id = random_id();
  std::vector<std::string> words = spec.words;
  for (int attempt = 0;; ++attempt) {
    Attempt ranks(spec, voice, signals, interruption);
    std::optional<ReservedPort> reserved;
    if (spec.port == 0) reserved.emplace();
    ranks.start(words,
                environment_of(spec, reserved ? reserved->number() : spec.port, run_id, attempt));
    const RankStates states = ranks.run();
    const Verdict verdict = judge(states, interruption);
    tell_ends(voice, states, verdict);
    if (voice.is_unread() && verdict.exit_code == 128 + SIGTERM) return 128 + SIGPIPE;
    if (!verdict.is_worth_retrying || attempt == spec.max_restarts) return verdict.exit_code;
    const bool has_saved = has_new(before, saved_checkpoints(spec.checkpoints_folder));
    if (has_saved) words = words_to_resume(spec.words);
    voice.say(fmt::format("restart {} of {}: starting all ranks again, {}", attempt + 1,
                          spec.max_restarts,
                          has_saved ? "from the last good checkpoint"
                                    : "from the beginning, since nothing was saved yet"));
  }
}

}  // namespace laconic
