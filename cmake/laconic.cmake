# laconic_library(name SOURCES a.cpp ... [DEPS folder ...] [LINK lib ...] [TORCH] [COLD [HOT b.cpp ...]])
# laconic_program(name SOURCES a.cpp ... [DEPS folder ...] [LINK lib ...] [TORCH] [COLD])
# laconic_module(name SOURCES a.cpp ... LINK lib ...)
# laconic_test(name SOURCES a_test.cpp ... [DEPS ...] [LINK ...] [TORCH | IN group] [THOROUGH] [LABELS slow openmp gpu])
# laconic_test_group(group [TORCH])
# laconic_test_support(name SOURCES a.cpp ... [DEPS ...] [LINK ...])
#
# A library is a folder. DEPS are other folders and must obey cmake/law.txt; LINK is for
# third-party libraries. TORCH adds libtorch and the shared precompiled header. COLD is for what runs
# once, where compiling costs more than it could save: it gets -Og and no line numbers, but for its
# kernels and the sources named HOT. What several tests share is a test support:
# listed as a source of each, it would be compiled once for each. Tests IN a group share one program, so that
# headers are read and templates instantiated once for all of them; build/tests/<name>_test is then a
# script that runs the program with the sources of this test alone. A module is laconic-NAME.so, which programs open when
# they need it, so that nobody else sees the symbols of what it links (base/plugin.hpp). Tests labelled `slow` run
# with --all, those labelled `openmp` ask for several threads by themselves and are left out under tsan, those
# labelled `gpu` skip where there is none (tensor/test_gpu.hpp). What is THOROUGH runs a part of its cases, and in a slow
# test `<name>_thorough` all of them (base/test_effort.hpp).

file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/law.txt law_lines REGEX "^[a-z_]+:")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/law.txt)
foreach(line IN LISTS law_lines)
  string(REGEX MATCH "^[a-z_]+" folder "${line}")
  string(REGEX REPLACE "^[a-z_]+: *" "" allowed "${line}")
  string(REPLACE " " ";" LACONIC_LAW_${folder} "${allowed}")
  list(APPEND LACONIC_FOLDERS ${folder})
endforeach()

function(laconic_check_law folder)
  if(NOT folder IN_LIST LACONIC_FOLDERS)
    message(FATAL_ERROR "folder '${folder}' is not in cmake/law.txt")
  endif()
  foreach(dep IN LISTS ARGN)
    if(NOT dep IN_LIST LACONIC_LAW_${folder})
      message(FATAL_ERROR "'${folder}' may not depend on '${dep}' (cmake/law.txt)")
    endif()
  endforeach()
endfunction()

# Warnings, sanitizers and the precompiled header, the same for every target: a shared
# precompiled header is only reusable between targets that compile alike. GCC does read one that was
# made with another optimisation, and then optimises as that one says, whatever the target says.
# TEMPERATURE: hot, cold or test, as in the top CMakeLists.txt.
function(laconic_compile_like_all target torch temperature)
  set(kind ${temperature}_std)
  if(torch)
    set(kind ${temperature}_tensor)
  endif()
  target_compile_options(${target} PRIVATE ${LACONIC_FLAGS} ${LACONIC_FLAGS_${kind}})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PUBLIC fmt::fmt)
  if(torch)
    target_link_libraries(${target} PUBLIC laconic_torch)
  endif()
  if(LACONIC_PCH)
    target_precompile_headers(${target} REUSE_FROM laconic_pch_${kind})
  endif()
  if(LACONIC_UNITY)
    laconic_unite(${target})
  endif()
endfunction()

# Compiles the sources of a target together, a few at a time: templates they have in common, of
# nlohmann/json and {fmt} above all, are then instantiated once. Kernels stay alone, because Highway
# includes each of them again for every instruction set.
function(laconic_unite target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 64)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "^kernel/")
  # A source that is included looks like a header, whose types may not have file-local members.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# What is COLD is compiled so in a release, not where somebody debugs.
function(laconic_temperature variable is_cold)
  set(${variable} hot PARENT_SCOPE)
  if(is_cold AND CMAKE_BUILD_TYPE STREQUAL "Release")
    set(${variable} cold PARENT_SCOPE)
  endif()
endfunction()

function(laconic_library name)
  cmake_parse_arguments(ARG "TORCH;COLD" "" "SOURCES;HOT;DEPS;LINK" ${ARGN})
  laconic_check_law(${name} ${ARG_DEPS})
  laconic_temperature(temperature ${ARG_COLD})
  if(temperature STREQUAL "cold")  # Kernels never are.
    set(kernels ${ARG_SOURCES})
    list(FILTER kernels INCLUDE REGEX "^kernel/")
    list(FILTER ARG_SOURCES EXCLUDE REGEX "^kernel/")
    list(APPEND ARG_HOT ${kernels})
  endif()
  add_library(laconic_${name} STATIC ${ARG_SOURCES})
  add_library(laconic::${name} ALIAS laconic_${name})
  laconic_compile_like_all(laconic_${name} ${ARG_TORCH} ${temperature})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(laconic_${name} PUBLIC laconic::${dep})
  endforeach()
  target_link_libraries(laconic_${name} PUBLIC ${ARG_LINK})
  if(ARG_HOT)
    # A target of their own: sources that are compiled together are compiled alike.
    add_library(laconic_${name}_hot OBJECT ${ARG_HOT})
    laconic_compile_like_all(laconic_${name}_hot ${ARG_TORCH} hot)
    target_include_directories(laconic_${name}_hot PRIVATE
                               $<TARGET_PROPERTY:laconic_${name},INTERFACE_INCLUDE_DIRECTORIES>)
    target_link_libraries(laconic_${name}_hot PUBLIC ${ARG_LINK})
    target_sources(laconic_${name} PRIVATE $<TARGET_OBJECTS:laconic_${name}_hot>)
  endif()
endfunction()

function(laconic_program name)
  cmake_parse_arguments(ARG "TORCH;COLD;TEST" "" "SOURCES;DEPS;LINK" ${ARGN})
  laconic_temperature(temperature ${ARG_COLD})
  if(ARG_TEST)
    set(temperature test)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  laconic_compile_like_all(${name} ${ARG_TORCH} ${temperature})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${name} PRIVATE laconic::${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

# No library of ours may be linked: the program has one already, with a state of its own.
function(laconic_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(laconic_${name}_module MODULE ${ARG_SOURCES})
  target_compile_options(laconic_${name}_module PRIVATE ${LACONIC_FLAGS})
  target_include_directories(laconic_${name}_module PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(laconic_${name}_module PRIVATE ${ARG_LINK})
  if(NOT LACONIC_SANITIZE)  # whose functions are in the program
    target_link_options(laconic_${name}_module PRIVATE LINKER:-z,defs)
  endif()
  set_target_properties(laconic_${name}_module PROPERTIES PREFIX "" OUTPUT_NAME laconic-${name}
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  set_property(GLOBAL APPEND PROPERTY LACONIC_MODULES laconic_${name}_module)
endfunction()

function(laconic_test_support name)
  if(NOT LACONIC_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LINK" ${ARGN})
  # Objects, not an archive: nothing names the tests in it, so the linker would leave them out.
  add_library(${name} OBJECT ${ARG_SOURCES})
  laconic_compile_like_all(${name} FALSE test)
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${name} PUBLIC laconic::${dep})
  endforeach()
  target_link_libraries(${name} PUBLIC ${ARG_LINK} GTest::gtest)
endfunction()

function(laconic_test_group group)
  if(NOT LACONIC_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "TORCH" "" "" ${ARGN})
  set(torch "")
  if(ARG_TORCH)
    set(torch TORCH)
  endif()
  laconic_program(${group}_tests SOURCES ${PROJECT_SOURCE_DIR}/tests/main.cpp LINK GTest::gtest ${torch} TEST)
  set_target_properties(${group}_tests PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
                                                  LACONIC_IS_TORCH "${ARG_TORCH}")
endfunction()

# Adds a test to the program of its group, and the script that stands for a program of its own.
function(laconic_join_group name group sources deps link)
  set(program ${group}_tests)
  set(files "")
  foreach(source IN LISTS sources)
    target_sources(${program} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    get_filename_component(file ${source} NAME)
    list(APPEND files ${file})
  endforeach()
  foreach(dep IN LISTS deps)
    target_link_libraries(${program} PRIVATE laconic::${dep})
  endforeach()
  target_link_libraries(${program} PRIVATE ${link})
  add_custom_target(${name}_test DEPENDS ${program})
  list(JOIN files "," files)
  set(script ${CMAKE_BINARY_DIR}/tests/${name}_test)
  file(WRITE ${script} "#!/bin/sh\nexec \"\$(dirname \"\$0\")/${program}\" --files=${files} \"\$@\"\n")
  file(CHMOD ${script} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                   WORLD_READ WORLD_EXECUTE)
endfunction()

# Test programs are not started by the front, so what it tells workers (machine/environment.hpp) they hear from
# here: threads that wait do not spin for long, since ranks that are threads have a pool each, on cores that other
# tests need; and OpenBLAS takes kernels of this processor, also if it is younger than itself. Otherwise half of the
# time of equivalence tests goes into kernels of 2004.
set(LACONIC_TEST_ENVIRONMENT GOMP_SPINCOUNT=1000)
if(EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo cpu_facts REGEX "^(flags|vendor_id)" LIMIT_COUNT 2)
  if(cpu_facts MATCHES "GenuineIntel" AND cpu_facts MATCHES " avx512vl")
    set(LACONIC_BLAS_CORE OPENBLAS_CORETYPE=SkylakeX)
  elseif(cpu_facts MATCHES " avx2 ")
    set(LACONIC_BLAS_CORE OPENBLAS_CORETYPE=Haswell)
  endif()
endif()

# One ctest entry per test, not per case: loading libtorch costs half a second each time.
function(laconic_test name)
  if(NOT LACONIC_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "TORCH;THOROUGH" "IN" "SOURCES;DEPS;LINK;LABELS" ${ARGN})
  if(ARG_IN)
    laconic_join_group(${name} ${ARG_IN} "${ARG_SOURCES}" "${ARG_DEPS}" "${ARG_LINK}")
    get_target_property(ARG_TORCH ${ARG_IN}_tests LACONIC_IS_TORCH)
    set(command ${CMAKE_BINARY_DIR}/tests/${name}_test)
  else()
    set(torch "")
    if(ARG_TORCH)
      set(torch TORCH)
    endif()
    laconic_program(${name}_test SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS}
                    LINK ${ARG_LINK} GTest::gtest GTest::gtest_main ${torch} TEST)
    set_target_properties(${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    set(command ${name}_test)
  endif()
  set(environment ${LACONIC_TEST_ENVIRONMENT})
  if(ARG_TORCH)
    list(APPEND ARG_LABELS tensor)
    list(APPEND environment ${LACONIC_BLAS_CORE})
  endif()
  add_test(NAME ${name} COMMAND ${command})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 300
                       ENVIRONMENT "LACONIC_SOURCE=${PROJECT_SOURCE_DIR};LACONIC_BIN=${CMAKE_BINARY_DIR}/bin;${environment}")
  if(ARG_THOROUGH)
    add_test(NAME ${name}_thorough COMMAND ${command})
    set_tests_properties(${name}_thorough PROPERTIES LABELS "${ARG_LABELS};slow" TIMEOUT 1800
                         ENVIRONMENT "LACONIC_THOROUGH=1;LACONIC_SOURCE=${PROJECT_SOURCE_DIR};LACONIC_BIN=${CMAKE_BINARY_DIR}/bin;${environment}")
  endif()
  if(gpu IN_LIST ARG_LABELS)
    # What tensor/test_gpu.hpp says. Several that compute at once would measure each other.
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "no GPU here: " RESOURCE_LOCK gpu)
  endif()
endfunction()
