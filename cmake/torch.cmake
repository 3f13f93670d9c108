# The one place that knows where torch lies. find_package(Torch) is not used: it drags in the CUDA libraries of the wheel.
if(NOT EXISTS "${PLAIT_TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "PLAIT_TORCH_DIR=${PLAIT_TORCH_DIR} holds no lib/libtorch_cpu.so.\n"
    "Run setup/install.sh, or give the torch folder of a PyTorch >= 2.11: -DPLAIT_TORCH_DIR=.../site-packages/torch")
endif()
file(STRINGS "${PLAIT_TORCH_DIR}/include/torch/headeronly/version.h" _torch_version_lines REGEX "define TORCH_VERSION_M(AJOR|INOR) ")
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" PLAIT_TORCH_VERSION "${_torch_version_lines}")
if(PLAIT_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "torch ${PLAIT_TORCH_VERSION} in ${PLAIT_TORCH_DIR} is too old: plait needs 2.11 or newer")
endif()
find_package(Threads REQUIRED)
foreach(lib c10 torch_cpu)
  add_library(plait::${lib} SHARED IMPORTED)
  set_target_properties(plait::${lib} PROPERTIES
    IMPORTED_LOCATION "${PLAIT_TORCH_DIR}/lib/lib${lib}.so" IMPORTED_SONAME "lib${lib}.so")
endforeach()
# The OpenMP library that this torch runs its threads on; a second one in the process would have threads of its own.
file(GLOB _torch_openmp "${PLAIT_TORCH_DIR}/lib/libgomp*.so*")
if(_torch_openmp)
  list(GET _torch_openmp 0 _torch_openmp)
else()
  set(_torch_openmp gomp)
endif()
# Imported, not built: an installed plait makes it anew from the torch found then (cmake/install.cmake).
add_library(plait_torch INTERFACE IMPORTED GLOBAL)
target_include_directories(plait_torch SYSTEM INTERFACE
  "${PLAIT_TORCH_DIR}/include" "${PLAIT_TORCH_DIR}/include/torch/csrc/api/include")
target_compile_definitions(plait_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1 USE_DISTRIBUTED USE_C10D_GLOO)
target_link_libraries(plait_torch INTERFACE plait::torch_cpu plait::c10 ${_torch_openmp} Threads::Threads)
target_link_options(plait_torch INTERFACE "LINKER:--allow-shlib-undefined" "LINKER:-rpath,${PLAIT_TORCH_DIR}/lib")
