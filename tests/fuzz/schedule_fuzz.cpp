// The reader of schedule files: any bytes give a schedule or problems. What was read can be
// checked, drawn, lowered, printed and read again; and what may run may run when it is lowered.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "laconic/base/error.hpp"
#include "laconic/schedule/check.hpp"
#include "laconic/schedule/lower.hpp"

using namespace laconic;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Schedule schedule;
  try {
    schedule = parse_schedule({reinterpret_cast<const char*>(data), size});
  } catch (const ConfigError& error) {
    if (error.problems().empty()) std::abort();
    return 0;
  }
  if (parse_schedule(to_text(schedule)) != schedule) std::abort();
  const bool is_good = check(schedule).empty();
  if (is_good != (picture_of_fault(schedule) == to_text(schedule))) std::abort();
  if (is_good && !check(lowered(schedule)).empty()) std::abort();
  return 0;
}
