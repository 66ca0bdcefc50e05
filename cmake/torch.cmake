# Finds libtorch 1.13 ... 2.x without its own CMake package, which drags in CUDA, protobuf and
# the rest. Order: LACONIC_TORCH or CMAKE_PREFIX_PATH, the system (Debian's libtorch-dev), then
# the torch that python3 imports. Makes the interface target laconic_torch.

set(LACONIC_TORCH "" CACHE PATH "Root of a libtorch (holds include/ and lib/); empty: search")

find_path(LACONIC_TORCH_INCLUDE ATen/core/Tensor.h HINTS ${LACONIC_TORCH}/include)
if(NOT LACONIC_TORCH_INCLUDE)
  execute_process(
    COMMAND python3 -c "import os, torch; print(os.path.dirname(torch.__file__))"
    OUTPUT_VARIABLE python_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(python_torch)
    message(STATUS "libtorch: taking the one python3 imports, ${python_torch}")
    set(LACONIC_TORCH ${python_torch} CACHE PATH "" FORCE)
    find_path(LACONIC_TORCH_INCLUDE ATen/core/Tensor.h HINTS ${python_torch}/include NO_DEFAULT_PATH)
  endif()
endif()
if(NOT LACONIC_TORCH_INCLUDE)
  message(FATAL_ERROR "libtorch not found: apt install libtorch-dev, or set -DLACONIC_TORCH=/path/to/libtorch")
endif()

add_library(laconic_torch INTERFACE)
# Without this some of libtorch's headers include all of its two thousand operators.
target_compile_definitions(laconic_torch INTERFACE AT_PER_OPERATOR_HEADERS)
target_include_directories(laconic_torch SYSTEM INTERFACE ${LACONIC_TORCH_INCLUDE})
foreach(lib torch_cpu c10)
  find_library(LACONIC_LIB_${lib} ${lib} HINTS ${LACONIC_TORCH}/lib REQUIRED)
  target_link_libraries(laconic_torch INTERFACE ${LACONIC_LIB_${lib}})
endforeach()
find_library(LACONIC_LIB_torch_cuda torch_cuda HINTS ${LACONIC_TORCH}/lib)
if(LACONIC_LIB_torch_cuda)
  # Nothing of ours names a symbol of torch_cuda: it registers its kernels when it loads, so the
  # linker must keep it although it looks unused.
  target_link_options(laconic_torch INTERFACE
    "LINKER:--push-state,--no-as-needed,${LACONIC_LIB_torch_cuda},--pop-state")
endif()

# at::parallel_for is a template with an OpenMP pragma: without the flag it silently runs on one
# thread. Debian's libtorch uses the system's OpenMP, so this is the same pool.
target_compile_options(laconic_torch INTERFACE -fopenmp)
target_link_options(laconic_torch INTERFACE -fopenmp)

# Debian ships OpenBLAS with its own threads and with OpenMP. libtorch's kernels use OpenMP, so the
# OpenMP build shares their pool; the other one brings a second pool that fights for the cores.
# An old-style RPATH in our programs also covers what libtorch itself loads.
file(GLOB LACONIC_OPENBLAS_OPENMP /usr/lib/*/openblas-openmp)
if(LACONIC_OPENBLAS_OPENMP)
  list(GET LACONIC_OPENBLAS_OPENMP 0 LACONIC_OPENBLAS_OPENMP)
  target_link_options(laconic_torch INTERFACE
    "LINKER:--disable-new-dtags,-rpath,${LACONIC_OPENBLAS_OPENMP}")
endif()

# libtorch from PyPI brings headers of its own {fmt}; without this they would hide the system's, and
# what they declare is in no library we link.
if(EXISTS ${LACONIC_TORCH_INCLUDE}/fmt/format.h AND NOT LACONIC_TORCH_INCLUDE STREQUAL "/usr/include")
  find_path(LACONIC_FMT_INCLUDE fmt/format.h PATHS /usr/include /usr/local/include NO_DEFAULT_PATH REQUIRED)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/first)
  file(CREATE_LINK ${LACONIC_FMT_INCLUDE}/fmt ${CMAKE_BINARY_DIR}/first/fmt SYMBOLIC)
  target_include_directories(laconic_torch BEFORE INTERFACE ${CMAKE_BINARY_DIR}/first)
endif()

# The header that says the version moved; its three macros did not.
foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(EXISTS ${LACONIC_TORCH_INCLUDE}/${header})
    file(STRINGS ${LACONIC_TORCH_INCLUDE}/${header} version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]")
    if(version_lines)
      string(REGEX REPLACE "[^0-9;]" "" version_lines "${version_lines}")
      string(REPLACE ";" "." LACONIC_TORCH_VERSION "${version_lines}")
      break()
    endif()
  endif()
endforeach()
if(NOT LACONIC_TORCH_VERSION)
  set(LACONIC_TORCH_VERSION "unknown")
endif()
target_compile_definitions(laconic_torch INTERFACE LACONIC_TORCH_VERSION="${LACONIC_TORCH_VERSION}")
message(STATUS "libtorch: ${LACONIC_TORCH_VERSION} at ${LACONIC_TORCH_INCLUDE}")
