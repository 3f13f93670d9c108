# cmake --install: bin/plait, the static libraries, headers, and the CMake package that find_package(plait) reads.
# torch is not installed with it: a program that uses plait::plait names its own PLAIT_TORCH_DIR (default: the one of this build).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(plait_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/plait)

set(plait_layers)
foreach(layer base config plan rendezvous elastic tensor comm tensor_parallel model data_parallel pipeline_parallel optim data checkpoint train)
  if(TARGET plait_${layer})
    list(APPEND plait_layers plait_${layer})
    set_target_properties(plait_${layer} PROPERTIES EXPORT_NAME ${layer})
  endif()
endforeach()
add_library(plait_plait INTERFACE)
set_target_properties(plait_plait PROPERTIES EXPORT_NAME plait)
target_link_libraries(plait_plait INTERFACE ${plait_layers})

install(TARGETS ${plait_layers} plait_plait EXPORT plait ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT plait NAMESPACE plait:: FILE plaitTargets.cmake DESTINATION ${plait_package_dir})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/plait DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
get_property(mpi_plugins GLOBAL PROPERTY PLAIT_MPI_PLUGINS)
if(mpi_plugins)
  install(TARGETS ${mpi_plugins} LIBRARY DESTINATION lib/plait)
endif()
if(TARGET plait)
  set_target_properties(plait PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS plait RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # The manual page and the completions are what the program says about itself.
  set(plait_pages ${CMAKE_BINARY_DIR}/pages)
  install(CODE "
    file(MAKE_DIRECTORY \"${plait_pages}\")
    foreach(page \"man\" \"completion;bash\" \"completion;zsh\" \"completion;fish\")
      list(GET page -1 name)
      execute_process(COMMAND \"$<TARGET_FILE:plait>\" \${page} OUTPUT_FILE \"${plait_pages}/\${name}\" COMMAND_ERROR_IS_FATAL ANY)
    endforeach()")
  install(FILES ${plait_pages}/man DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME plait.1)
  install(FILES ${plait_pages}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME plait)
  install(FILES ${plait_pages}/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _plait)
  install(FILES ${plait_pages}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME plait.fish)
endif()
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/plait)

configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/plaitConfig.cmake.in ${CMAKE_BINARY_DIR}/plaitConfig.cmake
  INSTALL_DESTINATION ${plait_package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/plaitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/plaitConfig.cmake ${CMAKE_BINARY_DIR}/plaitConfigVersion.cmake
  ${CMAKE_SOURCE_DIR}/cmake/torch.cmake ${CMAKE_SOURCE_DIR}/cmake/libraries.cmake DESTINATION ${plait_package_dir})
