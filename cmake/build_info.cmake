# Run at every build (apps/CMakeLists.txt): writes OUTPUT, a C++ source that names the commit of SOURCE, only when it differs, so that a new commit
# compiles one line. "unknown" where SOURCE is not the top of a git checkout; "-dirty" when tracked files were changed.
set(commit unknown)
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} --no-optional-locks -C ${SOURCE} rev-parse --show-prefix OUTPUT_VARIABLE prefix RESULT_VARIABLE failed
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed AND prefix STREQUAL "")
    execute_process(COMMAND ${GIT} --no-optional-locks -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE found RESULT_VARIABLE failed
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT failed)
      set(commit ${found})
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "namespace plait {\nextern const char* const kGitCommit = \"${commit}\";\n}\n")
