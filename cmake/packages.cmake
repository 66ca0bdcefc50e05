# Third-party libraries, all of them Debian packages (the list is in ./dev).
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)
if(LACONIC_TESTS)
  find_package(GTest REQUIRED)
endif()

# Libraries whose CMake files are missing or differ between distributions: found by their header.
find_path(LACONIC_XXHASH_INCLUDE xxhash.h REQUIRED)
find_path(LACONIC_TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)
add_library(tomlplusplus::tomlplusplus INTERFACE IMPORTED)
target_include_directories(tomlplusplus::tomlplusplus INTERFACE ${LACONIC_TOMLPLUSPLUS_INCLUDE})

find_path(LACONIC_HWY_INCLUDE hwy/highway.h REQUIRED)
find_library(LACONIC_LIB_HWY hwy REQUIRED)
add_library(hwy::hwy INTERFACE IMPORTED)
target_include_directories(hwy::hwy INTERFACE ${LACONIC_HWY_INCLUDE})
target_link_libraries(hwy::hwy INTERFACE ${LACONIC_LIB_HWY})

find_path(LACONIC_PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(LACONIC_LIB_PCRE2 pcre2-8 REQUIRED)
add_library(laconic_pcre2 INTERFACE)
target_include_directories(laconic_pcre2 SYSTEM INTERFACE ${LACONIC_PCRE2_INCLUDE})
target_link_libraries(laconic_pcre2 INTERFACE ${LACONIC_LIB_PCRE2})

find_path(LACONIC_UTF8PROC_INCLUDE utf8proc.h REQUIRED)
find_library(LACONIC_LIB_UTF8PROC utf8proc REQUIRED)
add_library(laconic_utf8proc INTERFACE)
target_include_directories(laconic_utf8proc SYSTEM INTERFACE ${LACONIC_UTF8PROC_INCLUDE})
target_link_libraries(laconic_utf8proc INTERFACE ${LACONIC_LIB_UTF8PROC})

# Optional: without it SentencePiece models are refused.
find_path(LACONIC_SENTENCEPIECE_INCLUDE sentencepiece_processor.h)
find_library(LACONIC_LIB_SENTENCEPIECE sentencepiece)
add_library(laconic_sentencepiece INTERFACE)
if(LACONIC_SENTENCEPIECE_INCLUDE AND LACONIC_LIB_SENTENCEPIECE)
  set(LACONIC_HAS_SENTENCEPIECE ON)
  target_include_directories(laconic_sentencepiece SYSTEM INTERFACE ${LACONIC_SENTENCEPIECE_INCLUDE})
  target_link_libraries(laconic_sentencepiece INTERFACE ${LACONIC_LIB_SENTENCEPIECE})
else()
  set(LACONIC_HAS_SENTENCEPIECE OFF)
  message(STATUS "SentencePiece: not found (apt install libsentencepiece-dev); building without it")
endif()

# What compressed inputs of `laconic prepare` need; too common to be optional.
find_package(ZLIB REQUIRED)
find_package(LibLZMA REQUIRED)
find_path(LACONIC_ZSTD_INCLUDE zstd.h REQUIRED)
find_library(LACONIC_LIB_ZSTD zstd REQUIRED)
add_library(laconic_compression INTERFACE)
target_include_directories(laconic_compression SYSTEM INTERFACE ${LACONIC_ZSTD_INCLUDE})
target_link_libraries(laconic_compression INTERFACE ZLIB::ZLIB LibLZMA::LibLZMA ${LACONIC_LIB_ZSTD})

# MPI, any that speaks version 3, is taken when it is there. ON makes it a must, OFF leaves it.
set(LACONIC_MPI AUTO CACHE STRING "MPI transport: AUTO, ON or OFF")
set_property(CACHE LACONIC_MPI PROPERTY STRINGS AUTO ON OFF)
if(LACONIC_MPI STREQUAL AUTO)
  find_package(MPI 3.0 QUIET COMPONENTS CXX)
elseif(LACONIC_MPI)
  find_package(MPI 3.0 REQUIRED COMPONENTS CXX)
endif()
# Not MPI::MPI_CXX: its flags would reach everybody who uses a transport and spoil the precompiled
# header, and programs that never ask for MPI should not load it.
add_library(laconic_mpi INTERFACE)
if(MPI_CXX_FOUND)
  target_link_libraries(laconic_mpi INTERFACE -Wl,--push-state,--as-needed ${MPI_CXX_LIBRARIES}
                        -Wl,--pop-state)
endif()

# Optional: without it there is no transport between processes but MPI.
find_path(LACONIC_GLOO_INCLUDE gloo/transport/tcp/device.h)
find_library(LACONIC_LIB_GLOO gloo)
if(LACONIC_GLOO_INCLUDE AND LACONIC_LIB_GLOO)
  add_library(laconic_gloo INTERFACE)
  target_include_directories(laconic_gloo SYSTEM INTERFACE ${LACONIC_GLOO_INCLUDE})
  target_link_libraries(laconic_gloo INTERFACE ${LACONIC_LIB_GLOO})
else()
  message(STATUS "gloo: not found (apt install libgloo-dev); building without it")
endif()
