// A stand-in for the worker, for tests of launching: does what its environment tells it.
//
//   STAND_IN_2_1="say hello; sleep 0.1; kill 9"     rank 2, attempt 1
//   STAND_IN_2="..."                                rank 2, other attempts
//   STAND_IN="..."                                  everybody else
//
// `stand_in launch RANKS [key=value ...] -- WORDS...` is a launcher whose workers are stand-ins.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "laconic/base/text.hpp"
#include "laconic/cli/guard.hpp"
#include "laconic/launch/fork_server.hpp"
#include "laconic/launch/local.hpp"

namespace laconic {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

volatile std::sig_atomic_t signals = 0;
volatile std::sig_atomic_t last_signal = 0;

void count_signal(int number) {
  signals = signals + 1;
  last_signal = number;
}

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

std::string script() {
  const std::string rank = variable("RANK"), attempt = variable("LACONIC_ATTEMPT");
  for (const std::string& name :
       {"STAND_IN_" + rank + "_" + attempt, "STAND_IN_" + rank, std::string("STAND_IN")})
    if (const std::string text = variable(name); !text.empty()) return text;
  return "";
}

void print(std::FILE* out, const std::string& text) {
  fmt::print(out, "{}", text);
  std::fflush(out);
}

void nap(double seconds) {
  ::usleep(static_cast<useconds_t>(seconds * 1e6));
}

// Waits for a signal, and a little longer for another.
[[noreturn]] void obey() {
  std::signal(SIGINT, count_signal);
  std::signal(SIGTERM, count_signal);
  print(stdout, "ready\n");
  while (signals == 0) nap(0.005);
  nap(0.4);
  print(stdout, fmt::format("signals: {}\n", static_cast<int>(signals)));
  std::exit(128 + last_signal);
}

using Deed = void (*)(const std::string&);
const std::map<std::string, Deed> kDeeds = {
    {"say", [](const std::string& text) { print(stdout, text + "\n"); }},
    {"complain", [](const std::string& text) { print(stderr, text + "\n"); }},
    {"piece", [](const std::string& text) { print(stdout, text); }},
    {"env", [](const std::string& name) { print(stdout, name + "=" + variable(name) + "\n"); }},
    {"tty",
     [](const std::string&) {
       print(stdout,
             fmt::format("terminal: {} {}\n", ::isatty(STDOUT_FILENO), ::isatty(STDERR_FILENO)));
     }},
    {"chatter",
     [](const std::string& text) {
       while (true) print(stdout, text + "\n");
     }},
    {"sleep", [](const std::string& seconds) { nap(std::stod(seconds)); }},
    {"exit", [](const std::string& code) { std::exit(std::stoi(code)); }},
    {"kill",
     [](const std::string& signal) {
       std::signal(std::stoi(signal), SIG_DFL);  // a sanitizer would catch some of them
       ::raise(std::stoi(signal));
     }},
    {"save", [](const std::string& folder) { fs::create_directories(folder); }},
    {"pid",
     [](const std::string& folder) {
       const std::string path = folder + "/pid-" + variable("RANK");
       std::ofstream(path + ".tmp") << ::getpid();
       fs::rename(path + ".tmp", path);
     }},
    {"deaf",
     [](const std::string&) {
       std::signal(SIGINT, SIG_IGN);
       std::signal(SIGTERM, SIG_IGN);
     }},
    {"obey", [](const std::string&) { obey(); }},
};

int act(int argc, char** argv) {
  for (const std::string& part : split(script(), ';')) {
    const std::string deed(trim(part));
    if (deed.empty()) continue;
    const std::size_t blank = deed.find(' ');
    const std::string name = deed.substr(0, blank);
    const std::string value = blank == std::string::npos ? "" : deed.substr(blank + 1);
    if (name == "words")
      print(stdout, "words: " + join(Words(argv + 1, argv + argc), " ") + "\n");
    else
      kDeeds.at(name)(value);
  }
  return 0;
}

int launch(const Words& words) {
  LaunchSpec spec{.program = fs::read_symlink("/proc/self/exe"),
                  .words = {"stand_in"},
                  .environment = current_environment(),
                  .ranks = std::stoi(words.at(0))};
  spec.patience = {.grace_seconds = 5, .terminate_seconds = 5};
  std::size_t i = 1;
  for (; i < words.size() && words[i] != "--"; ++i) {
    const std::string key = words[i].substr(0, words[i].find('='));
    const std::string value = words[i].substr(key.size() + 1);
    if (key == "grace") spec.patience.grace_seconds = std::stod(value);
    if (key == "terminate") spec.patience.terminate_seconds = std::stod(value);
    if (key == "restarts") spec.max_restarts = std::stoi(value);
    if (key == "port") spec.port = std::stoi(value);
    if (key == "logs") spec.log_folder = value;
    if (key == "checkpoints") spec.checkpoints_folder = value;
    if (key == "program") spec.program = value;
    if (key == "forks") spec.serves_forks = value == "yes";
  }
  for (++i; i < words.size(); ++i) spec.words.push_back(words[i]);
  return launch_local(spec);
}

}  // namespace
}  // namespace laconic

int main(int argc, char** argv) {
  const bool is_launcher = argc > 2 && std::string(argv[1]) == "launch";
  if (!is_launcher) {
    laconic::serve_forks();
    return laconic::act(argc, argv);
  }
  return laconic::guarded([&] { return laconic::launch({argv + 2, argv + argc}); });
}
