# CUDA, when a compiler for it and a libtorch that was built with it are both there; otherwise
# everything runs on the CPU. A program built with CUDA runs on machines without a GPU too: libtorch
# asks for the driver when somebody first wants a device, not when it loads.
#
# Sets LACONIC_HAS_CUDA. What differs is a choice of sources (`x_cuda.cpp` or `no_cuda.cpp`), not an
# #ifdef. laconic_kernels(folder [EXACT] kernel/a.cu ...) adds kernels to the library of a folder. These
# are plain CUDA: launchers take pointers, sizes and a stream, and a source beside them knows tensors,
# because nvcc takes a minute for libtorch's headers. EXACT: results must be those of the CPU, bit by
# bit (docs/adr/0005), so no product is fused with the sum behind it; the compiler's other defaults
# (no flushing to zero, exact division and root) are right already.
set(LACONIC_CUDA AUTO CACHE STRING "Kernels for NVIDIA GPUs: AUTO, ON or OFF")
set_property(CACHE LACONIC_CUDA PROPERTY STRINGS AUTO ON OFF)
set(LACONIC_HAS_CUDA OFF)
if(LACONIC_CUDA)
  find_library(LACONIC_LIB_c10_cuda c10_cuda HINTS ${LACONIC_TORCH}/lib)
  include(CheckLanguage)
  if(LACONIC_LIB_torch_cuda AND LACONIC_LIB_c10_cuda)
    if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
      set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
    endif()
    check_language(CUDA)
  endif()
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
    endif()
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc knows C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    find_package(CUDAToolkit REQUIRED)
    set(LACONIC_HAS_CUDA ON)
    target_include_directories(laconic_torch SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
    # The shared one, which libtorch has loaded already: streams of two runtimes do not mix.
    target_link_libraries(laconic_torch INTERFACE ${LACONIC_LIB_c10_cuda} ${LACONIC_LIB_torch_cuda} CUDA::cudart)
    message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
    if(LACONIC_TORCH_VERSION VERSION_LESS 2.8)
      message(STATUS "CUDA: libtorch ${LACONIC_TORCH_VERSION} is older than 2.8: models run by its own kernels, without CUDA graphs")
    endif()
  elseif(NOT LACONIC_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "LACONIC_CUDA = ${LACONIC_CUDA}, but there is no CUDA compiler, or libtorch was "
                        "built without CUDA: set CMAKE_CUDA_COMPILER and LACONIC_TORCH")
  else()
    message(STATUS "CUDA: not found; building for the CPU alone")
  endif()
endif()

function(laconic_kernels folder)
  if(NOT LACONIC_HAS_CUDA)
    return()
  endif()
  cmake_parse_arguments(ARG "EXACT" "" "" ${ARGN})
  add_library(laconic_${folder}_kernels OBJECT ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(laconic_${folder}_kernels PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(laconic_${folder}_kernels PRIVATE --expt-relaxed-constexpr
    -Xcompiler=-fPIC,-Wall,-Wno-unknown-pragmas)
  if(ARG_EXACT)
    target_compile_options(laconic_${folder}_kernels PRIVATE --fmad=false)
  endif()
  target_sources(laconic_${folder} PRIVATE $<TARGET_OBJECTS:laconic_${folder}_kernels>)
  target_link_libraries(laconic_${folder} PUBLIC CUDA::cudart)
endfunction()
