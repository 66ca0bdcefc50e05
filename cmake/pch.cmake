# Precompiled headers, each built once and reused by every target of its kind: std + fmt, the same
# with ATen/core/Tensor.h, and both again for what is cold and for tests, with the flags of these and with
# GoogleTest, which the former do not need: two headers more would take longer than they save. Never
# torch/torch.h: it would make every file slower.
if(NOT LACONIC_PCH)
  return()
endif()
file(WRITE ${CMAKE_BINARY_DIR}/pch.cpp.in "// Only here to own the precompiled header.\n")
foreach(kind std tensor cold_std cold_tensor)
  set(pch laconic_pch_${kind})
  configure_file(${CMAKE_BINARY_DIR}/pch.cpp.in ${CMAKE_BINARY_DIR}/pch_${kind}.cpp COPYONLY)
  add_library(${pch} STATIC ${CMAKE_BINARY_DIR}/pch_${kind}.cpp)
  target_compile_options(${pch} PRIVATE ${LACONIC_FLAGS})
  target_link_libraries(${pch} PUBLIC fmt::fmt)
  target_precompile_headers(${pch} PRIVATE
    <algorithm> <array> <chrono> <cstddef> <cstdint> <filesystem> <functional> <map> <memory>
    <optional> <span> <string> <string_view> <utility> <variant> <vector> <fmt/format.h>)
  if(kind MATCHES "tensor")
    target_link_libraries(${pch} PUBLIC laconic_torch)
    target_precompile_headers(${pch} PRIVATE <ATen/core/Tensor.h>)
  endif()
  if(kind MATCHES "^cold_")
    target_compile_options(${pch} PRIVATE ${LACONIC_COLD_FLAGS})
    if(LACONIC_TESTS)
      target_link_libraries(${pch} PUBLIC GTest::gtest)
      target_precompile_headers(${pch} PRIVATE <gtest/gtest.h>)
    endif()
  endif()
endforeach()
