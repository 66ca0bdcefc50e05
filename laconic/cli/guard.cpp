#include "laconic/cli/guard.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "laconic/base/error.hpp"

namespace laconic {

namespace {

int complain(const std::string& what, int exit_code) {
  std::fflush(stdout);
  fmt::print(stderr, "laconic: {}\n", what);
  return exit_code;
}

}  // namespace

int guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const ConfigError& error) {
    const std::size_t count = error.problems().size();
    if (count == 1) return complain(error.what(), kExitRefused);
    return complain(fmt::format("{} problems:\n{}", count, error.what()), kExitRefused);
  } catch (const FileError& error) {
    return complain(error.what(), kExitRefused);
  } catch (const std::bad_alloc&) {
    return complain("out of memory: try a smaller train.microbatch, or model.recompute = true",
                    kExitFailure);
  } catch (const std::exception& error) {
    return complain(error.what(), kExitFailure);
  }
}

}  // namespace laconic
