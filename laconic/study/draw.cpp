#include "laconic/study/draw.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "laconic/base/error.hpp"
#include "laconic/file/atomic_file.hpp"
#include "laconic/lab/tool.hpp"

namespace laconic {

namespace {

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

std::string draw_figures(const std::string& folder, const std::vector<Figure>& figures) {
  const std::string path = std::filesystem::absolute(folder + "/figures").string();
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw SystemError(path, "make the folder", error.value());
  std::string reason = find_tool("gnuplot").empty() ? "gnuplot is not installed" : "";
  for (const Figure& figure : figures) {
    if (!has_data(figure)) continue;
    write_atomically(path + "/" + figure.name + ".dat", data_text(figure));
    write_atomically(path + "/" + figure.name + ".gp", script_text(figure));
    if (reason.empty()) reason = draw(path, figure.name);
  }
  return reason;
}

}  // namespace laconic
