// A study of three tiny trials, for tests of running one: shells in labs instead of training.
//
//   stand_in_study OUT LACONIC [retry]
//
// The first trial goes well, the second fails while a file `broken` is in the current folder, the
// third waits as long as a file `slow` is there. Each adds a line to the file `ran`,
// and leaves in `keeper` which process keeps its lab.
#include <fmt/format.h>

#include "laconic/cli/guard.hpp"
#include "laconic/machine/environment.hpp"
#include "laconic/study/run.hpp"

namespace laconic {
namespace {

constexpr const char* kScript = R"(
echo $PPID > keeper
echo NAME >> ran
echo 'bypass: said by NAME'
[ NAME = second ] && [ -e broken ] && echo 'it is broken' >&2 && exit 9
while [ NAME = third ] && [ -e slow ]; do sleep 0.05; done
mkdir -p FOLDER/run
echo '{"step": 1, "loss": 5, "seconds": 0.25}' > FOLDER/run/log.jsonl
echo '{"step": 2, "loss": 4, "seconds": 0.125}' >> FOLDER/run/log.jsonl
echo '{"traffic": []}' > FOLDER/summary.json
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

int run(const std::string& out, const std::string& laconic, bool retry) {
  const StudyLock lock(out);
  Study study{.out = out,
              .environment = current_environment(),
              .commit = "none",
              .machine = "this one",
              .deadline_seconds = 60,
              .retry = retry,
              .samples = [](const Trial&) { return 7.0; },
              .obstacle = [](const Trial&) { return std::string(); },
              .estimate = [](const Trial&) { return 1.0; }};
  for (const char* name : {"first", "second", "third"})
    study.trials.push_back(
        {.part = "tiny", .method = name, .rate = "100mbit", .hosts = 1, .warmup = 1, .steps = 1});
  study.command = [&](const Trial& trial, const std::string& folder) {
    const std::string script = replaced(replaced(kScript, "NAME", trial.method), "FOLDER", folder);
    return std::vector<std::string>{
        laconic, "lab",    "run",      "--ephemeral", "--hosts",
        "1",     "--rate", trial.rate, "--json",      folder + "/lab.json",
        "--",    "sh",     "-c",       script};
  };
  const StudyEnd end = run_study(study);
  for (const Outcome& outcome : end.outcomes)
    fmt::print("{}: {} {} {}\n", outcome.trial.method,
               of_a_step(outcome, &StepRow::seconds).value_or(0), outcome.samples, outcome.failure);
  return end.signal != 0 ? 128 + end.signal : 0;
}

}  // namespace
}  // namespace laconic

int main(int argc, char** argv) {
  return laconic::guarded([&] { return laconic::run(argv[1], argv[2], argc > 3); });
}
