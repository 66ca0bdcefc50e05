# Writes OUT, a source that says which commit of SOURCE it was built from: run before every build, it
# touches the file only when the answer has changed. Without git, or outside its own repository:
# "unknown".
set(commit "unknown")
find_program(GIT git)
if(GIT)
  # With sudo the tree belongs to somebody else, of whom git is wary.
  set(git ${GIT} -c safe.directory=* -C ${SOURCE})
  execute_process(COMMAND ${git} rev-parse --show-toplevel
                  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH ${SOURCE} source)
  if(top STREQUAL source)
    execute_process(COMMAND ${git} describe --always --dirty --abbrev=10 --exclude=*
                    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                    RESULT_VARIABLE failed)
    if(NOT failed)
      set(commit ${found})
    endif()
  endif()
endif()

set(text "#include \"laconic/cli/commit.hpp\"

namespace laconic {

std::string_view build_commit() {
  return \"${commit}\";
}

}  // namespace laconic
")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUT} "${text}")
endif()
