# libplait_openmpi.so and libplait_mpich.so, the plugins of train.comm.backend mpi, loaded by the program at run time. Each is built when
# PLAIT_MPI is on and the headers of its library are there (Debian: libopenmpi-dev, libmpich-dev); the program itself never links them.
# The compiler wrapper on the path says where they are; -DPLAIT_OPENMPI_WRAPPER=..., -DPLAIT_MPICH_WRAPPER=... name another one.
include_guard()
if(NOT PLAIT_MPI)
  return()
endif()

# plait_mpi_plugin(<kind> <version macro in mpi.h> <question to the wrapper> <wrapper names...>)
function(plait_mpi_plugin kind macro question)
  string(TOUPPER ${kind} name)
  find_program(PLAIT_${name}_WRAPPER NAMES ${ARGN})
  set(words)
  if(PLAIT_${name}_WRAPPER)
    execute_process(COMMAND ${PLAIT_${name}_WRAPPER} ${question} OUTPUT_VARIABLE words ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  endif()
  foreach(letter I L l)  # "-I/usr/include/mpich -L/usr/lib -lmpich"
    string(REGEX MATCHALL " -${letter} *[^ ]+" ${letter}_words " ${words}")
    list(TRANSFORM ${letter}_words REPLACE "^ -${letter} *" "")
  endforeach()
  list(FILTER l_words INCLUDE REGEX "^mpi(ch)?$")
  find_path(PLAIT_${name}_INCLUDE mpi.h HINTS ${I_words})
  set(found)
  if(PLAIT_${name}_INCLUDE AND l_words)
    find_library(PLAIT_${name}_LIBRARY NAMES ${l_words} HINTS ${L_words})
    file(STRINGS "${PLAIT_${name}_INCLUDE}/mpi.h" found REGEX "define +${macro}")
  endif()
  if(NOT found OR NOT PLAIT_${name}_LIBRARY)
    unset(PLAIT_${name}_INCLUDE CACHE)  # looked for anew the next time
    message(STATUS "MPI plugin plait_${kind}: not built (its mpi.h or its library is not here)")
    return()
  endif()
  add_library(plait_${kind} MODULE ${CMAKE_SOURCE_DIR}/plait/comm/mpi/plugin.cpp)
  target_include_directories(plait_${kind} PRIVATE ${CMAKE_SOURCE_DIR})
  target_include_directories(plait_${kind} SYSTEM PRIVATE ${PLAIT_${name}_INCLUDE})
  target_compile_definitions(plait_${kind} PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_link_libraries(plait_${kind} PRIVATE ${PLAIT_${name}_LIBRARY})
  # Beside the program, where it is looked for.
  set_target_properties(plait_${kind} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} INSTALL_RPATH_USE_LINK_PATH ON)
  set_property(GLOBAL APPEND PROPERTY PLAIT_MPI_PLUGINS plait_${kind})
endfunction()

plait_mpi_plugin(openmpi OMPI_MAJOR_VERSION -showme mpicc.openmpi mpicc)
plait_mpi_plugin(mpich MPICH_VERSION -show mpicc.mpich mpicc)
