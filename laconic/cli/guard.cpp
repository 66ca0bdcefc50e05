#include "laconic/cli/guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

int complain(const std::string& what, int exit_code) {
  std::fflush(stdout);
  fmt::print(stderr, "laconic: {}\n", what);
  return exit_code;
}

constexpr const char* kOutOfMemory =
    "out of memory: try a smaller train.microbatch, or model.recompute = true";

// libtorch appends its call stack, which helps nobody here, and tells a lack of memory as any
// other error.
int complain_of_other(std::string what) {
  if (what.find("can't allocate memory") != std::string::npos ||
      what.find("not enough memory") != std::string::npos)
    return complain(kOutOfMemory, kExitFailure);
  for (const std::string_view stack : {"\nException raised from ", "\nframe #0: "})
    what.resize(std::min(what.find(stack), what.size()));
  return complain(what, kExitFailure);
}

// "data/x: cannot create directories: Not a directory"; the library says "filesystem error: ..."
// and puts the paths in brackets behind.
int complain_of_file(const std::filesystem::filesystem_error& error) {
  std::string act = error.what();
  constexpr std::string_view kBegin = "filesystem error: ";
  if (act.starts_with(kBegin)) act.erase(0, kBegin.size());
  act.resize(std::min(act.find(": " + error.code().message()), act.size()));
  std::string paths = error.path1().string();
  if (!error.path2().empty()) paths += " -> " + error.path2().string();
  return complain(
      fmt::format("{}{}{}: {}", paths, paths.empty() ? "" : ": ", act, error.code().message()),
      kExitFailure);
}

}  // namespace

int guarded(const std::function<int()>& body) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f` is then an error like a full disk
  try {
    return body();
  } catch (const ConfigError& error) {
    const std::size_t count = error.problems().size();
    if (count == 1) return complain(error.what(), kExitRefused);
    return complain(fmt::format("{} problems:\n{}", count, error.what()), kExitRefused);
  } catch (const FileError& error) {
    return complain(error.what(), kExitRefused);
  } catch (const WireError& error) {
    return complain(error.what(), kExitRefused);
  } catch (const PeerLost& error) {
    return complain(error.what(), kExitPeerLost);
  } catch (const Timeout& error) {
    return complain(error.what(), kExitPeerLost);
  } catch (const std::filesystem::filesystem_error& error) {
    return complain_of_file(error);
  } catch (const std::bad_alloc&) {
    return complain(kOutOfMemory, kExitFailure);
  } catch (const std::exception& error) {
    return complain_of_other(error.what());
  }
}

}  // namespace laconic
