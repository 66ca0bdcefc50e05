// Compares simulated programs with SimGrid's answers (rerun.hpp).
//
//   build/bin/simgrid_bench [--quick | --case NUMBER]
//
// Three wires of SimGrid's: the same as ours, which has to be within 5 %; the same with SimGrid's
// own latency; and with its own numbers of TCP (LV08's bandwidth factor, 5 % for acknowledgements).
// These tell what the model of a wire is worth, and nothing is asked of them.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <string_view>

#include "bench/simgrid/program_case.hpp"
#include "bench/simgrid/rerun.hpp"
#include "laconic/architecture/grid_time.hpp"
#include "laconic/base/index.hpp"
#include "laconic/simulate/simulator.hpp"

namespace laconic {
namespace {

constexpr double kMostApart = 0.05;
constexpr std::array kWires = {
    SimgridWire{.bandwidth_factor = kTcpShare},
    SimgridWire{.bandwidth_factor = kTcpShare, .is_stream = false},
    SimgridWire{.bandwidth_factor = 0.97, .is_stream = false, .has_crosstraffic = true}};

struct Answer {
  double simulated = 0;  // seconds of the program
  double took = 0;       // and of the simulator
};

Answer timed(const std::function<double()>& simulator) {
  const auto begin = std::chrono::steady_clock::now();
  const double simulated = simulator();
  return {simulated,
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
}

// SimGrid has one engine for a process: a child of its own for every question.
std::optional<Answer> ask_simgrid(const RunProgram& program, const SimgridWire& wire) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    const Answer answer = timed([&] { return seconds_by_simgrid(program, wire, kTcpShare); });
    const bool is_told = write(ends[1], &answer, sizeof answer) == sizeof answer;
    _exit(is_told ? 0 : 1);
  }
  close(ends[1]);
  Answer answer;
  const bool is_heard = read(ends[0], &answer, sizeof answer) == sizeof answer;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!is_heard || status != 0) return std::nullopt;
  return answer;
}

// Whether both agree.
bool compare(const ProgramCase& program_case) {
  const RunProgram program = program_case.program();
  const Answer here = timed([&] { return simulate(program).seconds; });
  std::string row = fmt::format("| {} | {} | {:.4f} |", program_case.name, program.messages.size(),
                                here.simulated);
  bool agrees = true;
  double took = 0;
  for (std::size_t w = 0; w < kWires.size(); ++w) {
    const std::optional<Answer> there = ask_simgrid(program, kWires.at(w));
    const double apart = there ? here.simulated / there->simulated - 1 : 1;
    row += there ? fmt::format(" {:.4f} | {:+.2f} % |", there->simulated, 100 * apart)
                 : std::string(" failed | |");
    if (w > 0) continue;
    agrees = std::abs(apart) <= kMostApart;
    took = there ? there->took : 0;
  }
  fmt::print("{} {:.3f} | {:.3f} |{}\n", row, here.took, took,
             agrees ? "" : " more than 5 % apart");
  std::fflush(stdout);
  return agrees;
}

int compare_all(bool only_quick, int only) {
  fmt::print(
      "| program | messages | here s | SimGrid, same wire | here is | its latency | here is | its "
      "TCP | here is | took here s | took SimGrid s |\n"
      "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
  std::fflush(stdout);
  const std::vector<ProgramCase> all = program_cases();
  int asked = 0, agreed = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if ((only_quick && !all[i].is_quick) || (only >= 0 && only != static_cast<int>(i))) continue;
    ++asked;
    agreed += compare(all[i]) ? 1 : 0;
  }
  fmt::print("{} of {} are within {} %\n", agreed, asked, 100 * kMostApart);
  return agreed == asked && asked > 0 ? 0 : 1;
}

}  // namespace
}  // namespace laconic

int main(int argc, char** argv) {
  const std::string_view option = argc > 1 ? argv[1] : "";
  const int only = option == "--case" && argc > 2 ? std::stoi(argv[2]) : -1;
  return laconic::compare_all(option == "--quick", only);
}
