// The reader of configurations: any text gives a configuration or problems, and what was read can
// be checked, printed and read again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "laconic/config/read.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  laconic::RunConfig config;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!laconic::apply_toml(text, "fuzz.toml", config).empty()) return 0;
  (void)laconic::check(config);
  laconic::RunConfig again;
  const std::string printed = laconic::to_toml(config, true);
  if (!laconic::apply_toml(printed, "printed", again).empty()) std::abort();
  if (laconic::to_toml(again, true) != printed) std::abort();
  return 0;
}
