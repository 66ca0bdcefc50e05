#include "laconic/study/report.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/lab/tool.hpp"
#include "laconic/study/report_pages.hpp"

namespace laconic {

namespace {

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw SystemError(path, "make the folder", error.value());
}

// Scripts name files beside themselves, so gnuplot goes to their folder first.
std::string draw(const std::string& folder, const std::string& name) {
  std::string quoted;
  for (const char letter : folder) quoted += letter == '\'' ? "''" : std::string(1, letter);
  const ToolOutcome outcome = run_tool(
      {"gnuplot", "-e", fmt::format("cd '{}'", quoted), fmt::format("{}/{}.gp", folder, name)});
  if (outcome.exit_code == 0) return "";
  return fmt::format("gnuplot ended with code {}", outcome.exit_code);
}

}  // namespace

Drawn write_figures(const std::string& folder, const std::vector<Figure>& figures) {
  const std::string path = std::filesystem::absolute(folder + "/figures").string();
  make_folder(path);
  Drawn drawn;
  const bool has_gnuplot = !find_tool("gnuplot").empty();
  if (!has_gnuplot) drawn.reason = "gnuplot is not installed";
  for (const Figure& figure : figures) {
    if (!has_data(figure)) continue;
    drawn.has_data.push_back(figure.name);
    write_atomically(path + "/" + figure.name + ".dat", data_text(figure));
    write_atomically(path + "/" + figure.name + ".gp", script_text(figure));
    if (!has_gnuplot) continue;
    const std::string failure = draw(path, figure.name);
    if (failure.empty()) {
      drawn.names.push_back(figure.name);
    } else {
      drawn.reason = failure;
    }
  }
  return drawn;
}

void write_report(const std::string& folder, const std::vector<Outcome>& outcomes,
                  const ReportFacts& facts) {
  make_folder(folder);
  if (facts.size == "quality") {
    write_atomically(folder + "/README.md", quality_page(outcomes, facts));
    write_atomically(folder + "/commands.txt", commands_text(outcomes, facts));
    return;
  }
  const Drawn drawn = write_figures(folder, figures_of(outcomes));
  const auto write = [&](const char* name, const std::string& text) {
    write_atomically(folder + "/" + name, text);
  };
  write("bandwidth.md", bandwidth_page(outcomes, drawn));
  write("end-to-end.md", end_to_end_page(outcomes));
  write("optimus-cc.md", optimus_page(outcomes));
  write("data-parallel.md", data_parallel_page(outcomes, drawn));
  write("pays.md", pays_page(outcomes, drawn));
  write("honesty.md", honesty_page(outcomes));
  write("targets.md", targets_page(outcomes));
  write("commands.txt", commands_text(outcomes, facts));
  write("README.md", contents_page(outcomes, facts));
  write("summary.md", summary_page(outcomes, facts, drawn, ""));
  if (facts.size != "full" || !is_complete(outcomes, facts)) return;
  auto dated = std::filesystem::absolute(folder).lexically_normal();
  if (!dated.has_filename()) dated = dated.parent_path();
  // Anywhere else a README.md beside the folder is somebody else's.
  const auto results = dated.parent_path();
  if (results.filename() != "results" || results.parent_path().filename() != "docs") return;
  write("../README.md", summary_page(outcomes, facts, drawn, dated.filename().string() + "/"));
}

}  // namespace laconic
