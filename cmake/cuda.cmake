# libplait_cuda.so, the plugin with everything of CUDA and NCCL, loaded by the program at run time. Built when PLAIT_CUDA is on and both a
# toolkit (cuda_runtime.h and nccl.h) and torch's CUDA libraries are there; the program itself never links them.
include_guard()
if(NOT PLAIT_CUDA)
  return()
endif()
find_path(PLAIT_CUDA_INCLUDE cuda_runtime.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include
  "${PLAIT_TORCH_DIR}/../nvidia/cu13/include")
find_path(PLAIT_NCCL_INCLUDE nccl.h HINTS ${PLAIT_CUDA_INCLUDE} "${PLAIT_TORCH_DIR}/../nvidia/nccl/include")
if(NOT PLAIT_CUDA_INCLUDE OR NOT PLAIT_NCCL_INCLUDE OR NOT EXISTS "${PLAIT_TORCH_DIR}/lib/libtorch_cuda.so")
  message(STATUS "CUDA plugin: not built (needs cuda_runtime.h, nccl.h and libtorch_cuda.so)")
  return()
endif()
foreach(lib torch_cuda c10_cuda)
  add_library(plait::${lib} SHARED IMPORTED)
  set_target_properties(plait::${lib} PROPERTIES
    IMPORTED_LOCATION "${PLAIT_TORCH_DIR}/lib/lib${lib}.so" IMPORTED_SONAME "lib${lib}.so")
endforeach()
add_library(plait_cuda MODULE ${CMAKE_SOURCE_DIR}/plait/comm/cuda/plugin.cpp)
target_include_directories(plait_cuda PRIVATE ${CMAKE_SOURCE_DIR})
target_include_directories(plait_cuda SYSTEM PRIVATE ${PLAIT_CUDA_INCLUDE} ${PLAIT_NCCL_INCLUDE})
target_compile_definitions(plait_cuda PRIVATE USE_C10D_NCCL)
# --no-as-needed: the registrations inside libtorch_cuda are wanted even where no symbol of it is named.
target_link_options(plait_cuda PRIVATE "LINKER:--no-as-needed")
target_link_libraries(plait_cuda PRIVATE plait::torch_cuda plait::c10_cuda plait_torch)
# Beside the program, where it is looked for.
set_target_properties(plait_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
