// lab/tool.hpp — one program of the system, run to its end.
//
// No shell: words are words. It gets a process group of its own and an open
// mind for signals, so that Ctrl-C on the terminal does not cut a plan in the
// middle of a step.
#pragma once

#include <string>
#include <vector>

namespace laconic {

struct ToolOutcome {
  int exit_code = 0;   // 128 + n after signal n
  std::string output;  // standard output
  std::string error;   // standard error, without the newline at its end
};

// Where `name` is: in PATH, or where only root looks; a path is where it says. Empty when nowhere.
std::string find_tool(const std::string& name);

// The first word is looked for by find_tool(). Throws SystemError when it cannot be started.
ToolOutcome run_tool(const std::vector<std::string>& words);

}  // namespace laconic
