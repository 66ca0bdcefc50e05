# cmake -D FOLDER=laconic/codec/ -P tests/fuzz/sources.cmake: prints the sources that a build for the CPU
# alone, without optional libraries, compiles in a folder, one per line.
#
# The folder's own CMakeLists.txt says which, in its laconic_library(); the rest of that file is for tests
# and linkers and does nothing here. Where sources are chosen, they are chosen by variables that
# nobody sets here (LACONIC_HAS_CUDA, MPI_CXX_FOUND, ...): those remain that need nothing.
cmake_minimum_required(VERSION 3.25)

foreach(other laconic_kernels laconic_module laconic_test laconic_test_support target_include_directories)
  function(${other})
  endfunction()
endforeach()

function(laconic_library)
  cmake_parse_arguments(ARG "TORCH;COLD" "" "SOURCES;HOT;DEPS;LINK" ${ARGN})
  foreach(source IN LISTS ARG_SOURCES ARG_HOT)
    if(NOT EXISTS ${root}/${FOLDER}${source})
      message(FATAL_ERROR "${FOLDER}CMakeLists.txt: no file \"${source}\"; sources are chosen by if(), not by $<IF:...>")
    endif()
    execute_process(COMMAND ${CMAKE_COMMAND} -E echo ${FOLDER}${source})
  endforeach()
endfunction()

get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
include(${root}/${FOLDER}CMakeLists.txt)
