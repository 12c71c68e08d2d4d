# `cpack` writes the bundle, where all of it is built; `cpack -G DEB` the Debian packages (debian.cmake).
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_FILE_NAME moecl-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};moecl;ALL;/;${PROJECT_BINARY_DIR};moecl;bundle;/")
set(CPACK_MOECL_BUILD ${PROJECT_BINARY_DIR})
get_target_property(CPACK_MOECL_SOVERSION moecl SOVERSION)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/tools/package/debian.cmake)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
