# Two precompiled headers, each built once and reused by every target of its kind: std + fmt, and
# the same with ATen/core/Tensor.h. Never torch/torch.h: it would make every file slower.
if(NOT LACONIC_PCH)
  return()
endif()
file(WRITE ${CMAKE_BINARY_DIR}/pch.cpp.in "// Only here to own the precompiled header.\n")
foreach(kind std tensor)
  configure_file(${CMAKE_BINARY_DIR}/pch.cpp.in ${CMAKE_BINARY_DIR}/pch_${kind}.cpp COPYONLY)
  add_library(laconic_pch_${kind} STATIC ${CMAKE_BINARY_DIR}/pch_${kind}.cpp)
  target_compile_options(laconic_pch_${kind} PRIVATE ${LACONIC_FLAGS})
  target_link_libraries(laconic_pch_${kind} PUBLIC fmt::fmt)
  target_precompile_headers(laconic_pch_${kind} PRIVATE
    <algorithm> <array> <chrono> <cstddef> <cstdint> <filesystem> <functional> <map> <memory>
    <optional> <span> <string> <string_view> <utility> <variant> <vector> <fmt/format.h>)
endforeach()
target_link_libraries(laconic_pch_tensor PUBLIC laconic_torch)
target_precompile_headers(laconic_pch_tensor PRIVATE <ATen/core/Tensor.h>)
