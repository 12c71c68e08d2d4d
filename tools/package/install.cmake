# What `cmake --install` writes, in components. runtime: the shared library and the helper that it starts.
# moecl_mpi_openmpi, moecl_mpi_mpich: what it loads for ranks of that MPI. dev: headers, what find_package and pkg-config
# need, examples and pages. tools: the command, its page of the manual and what completes its words. Every path is
# relative, so the tree can be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moecl)
set(examples_dir ${CMAKE_INSTALL_DATADIR}/moecl/examples)
if(NOT BUILD_SHARED_LIBS)
  message(FATAL_ERROR "Only the shared library can be installed: set BUILD_SHARED_LIBS=ON, or MOECL_INSTALL=OFF")
endif()

install(TARGETS moecl EXPORT moecl LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev FILE_SET HEADERS COMPONENT dev
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set_target_properties(moecl PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS moecl_helper RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/moecl_helpers COMPONENT runtime)
foreach(plugin IN LISTS MOECL_MPI_PLUGINS)
  install(TARGETS ${plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/moecl_helpers COMPONENT ${plugin})
endforeach()
if(TARGET moecl_command)
  file(RELATIVE_PATH bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(moecl_command PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS moecl_command RUNTIME COMPONENT tools)
  set(written ${PROJECT_BINARY_DIR}/written)
  install(FILES ${written}/moecl.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  install(FILES ${written}/moecl DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tools)
  install(FILES ${written}/_moecl DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT tools)
  install(FILES ${written}/moecl.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tools)
endif()
install(EXPORT moecl FILE moeclTargets.cmake NAMESPACE moecl:: DESTINATION ${package_dir} COMPONENT dev)

configure_package_config_file(${PROJECT_SOURCE_DIR}/tools/package/package_config.cmake.in moeclConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# While the major version is 0 every minor version may break.
write_basic_package_version_file(moeclConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/moeclConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/moeclConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT dev)

file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_to_prefix ${pc_to_prefix})
configure_file(${PROJECT_SOURCE_DIR}/tools/package/moecl.pc.in moecl.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/moecl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# The examples, with a small model whose output is known.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/host/examples/ DESTINATION ${examples_dir} COMPONENT dev)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/data/goldens/mixtral-e8k2/ DESTINATION ${examples_dir}/checkpoint COMPONENT dev)

# The pages, at their places to each other.
file(GLOB_RECURSE pages RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/runtime/*.md ${PROJECT_SOURCE_DIR}/kernels_cl/*.md ${PROJECT_SOURCE_DIR}/kernels_cl/*.svg
     ${PROJECT_SOURCE_DIR}/dispatch/*.md ${PROJECT_SOURCE_DIR}/dispatch/*.svg ${PROJECT_SOURCE_DIR}/host/*.md
     ${PROJECT_SOURCE_DIR}/host/*.svg ${PROJECT_SOURCE_DIR}/tools/*.md)
foreach(page IN LISTS pages ITEMS README.md DESIGN.md CHANGELOG.md LICENSE bench/README.md)
  get_filename_component(folder ${page} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${page} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder} COMPONENT dev)
endforeach()
