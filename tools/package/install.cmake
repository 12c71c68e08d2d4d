# What `cmake --install` writes: the library, its headers, and what find_package and pkg-config need to find them.
# Every path is relative, so the tree can be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moecl)
if(NOT BUILD_SHARED_LIBS)
  message(FATAL_ERROR "Only the shared library can be installed: set BUILD_SHARED_LIBS=ON, or MOECL_INSTALL=OFF")
endif()

install(TARGETS moecl EXPORT moecl FILE_SET HEADERS INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set_target_properties(moecl PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS moecl_peer_probe moecl_compiler DESTINATION ${CMAKE_INSTALL_LIBDIR}/moecl_helpers)
if(TARGET moecl_command)
  file(RELATIVE_PATH bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(moecl_command PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS moecl_command)
endif()
install(EXPORT moecl FILE moeclTargets.cmake NAMESPACE moecl:: DESTINATION ${package_dir})

configure_package_config_file(${PROJECT_SOURCE_DIR}/tools/package/package_config.cmake.in moeclConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# While the major version is 0 every minor version may break.
write_basic_package_version_file(moeclConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/moeclConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/moeclConfigVersion.cmake
        DESTINATION ${package_dir})

file(RELATIVE_PATH pc_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_to_prefix ${pc_to_prefix})
configure_file(${PROJECT_SOURCE_DIR}/tools/package/moecl.pc.in moecl.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/moecl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
