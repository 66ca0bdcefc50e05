# Third-party libraries, all of them Debian packages (the list is in ./dev).
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(hwy REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(Threads REQUIRED)
if(LACONIC_TESTS)
  find_package(GTest REQUIRED)
endif()
if(LACONIC_BENCH)
  find_package(benchmark REQUIRED)
endif()

# Packages without a CMake file of their own.
find_library(LACONIC_LIB_PCRE2 pcre2-8 REQUIRED)
find_path(LACONIC_XXHASH_INCLUDE xxhash.h REQUIRED)
