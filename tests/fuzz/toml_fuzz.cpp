// toml++, which reads what users write: any text parses or raises parse_error. Once the reader of
// configurations exists, call that here instead.
#include <cstdint>
#include <string_view>

// toml++ 3.3 asserts that a time starts with a digit before it checks it: "1979-05-27Tp" ends the
// process (corpus/toml/invalid-time), or is undefined where NDEBUG is set. Without the assertion
// the check behind it raises parse_error. The real reader has to do the same, header-only.
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/toml.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    (void)toml::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const toml::parse_error&) {
  }
  return 0;
}
