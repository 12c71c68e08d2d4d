# `cpack -G DEB`: Debian packages of what `cmake --install` writes, the library by its soname, what builds against it, the
# command, and a plugin for each MPI that was there at the build. cpack reads this for every generator; CPACK_MOECL_* come from bundle.cmake.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
if(NOT DEFINED ENV{DEBFULLNAME} OR NOT DEFINED ENV{DEBEMAIL})
  message(FATAL_ERROR "Who makes these packages? Set DEBFULLNAME and DEBEMAIL.")
endif()
set(CPACK_INSTALL_CMAKE_PROJECTS "${CPACK_MOECL_BUILD};moecl;ALL;/")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL runtime dev tools ${CPACK_MOECL_MPI_PLUGINS})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian/add_files.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CPACK_MOECL_BUILD})  # where the command finds the library
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # else it comes before each one's own
set(about "moecl runs Mixture-of-Experts layers of large language models on any
OpenCL 1.2 device: a router picks a few experts for each token, and only
those compute.
")
set(mpi_name_openmpi "Open MPI")
set(mpi_name_mpich MPICH)
set(mpi_launcher_openmpi openmpi-bin)
set(mpi_launcher_mpich mpich)
set(library libmoecl${CPACK_MOECL_SOVERSION})
set(depends_on_library "${library} (= ${CPACK_PACKAGE_VERSION})")

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME ${library})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "pocl-opencl-icd | opencl-icd")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_LIST_DIR}/debian/triggers)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "Mixture-of-Experts layers on OpenCL devices
${about}
This is the shared library, with the helper that compiles kernels.")

foreach(plugin IN LISTS CPACK_MOECL_MPI_PLUGINS)
  string(REPLACE "moecl_mpi_" "" mpi ${plugin})
  string(TOUPPER ${plugin} component)
  set(CPACK_DEBIAN_${component}_PACKAGE_NAME ${library}-${mpi})
  set(CPACK_DEBIAN_${component}_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_${component}_PACKAGE_DEPENDS "${depends_on_library}")
  set(CPACK_DEBIAN_${component}_PACKAGE_SUGGESTS "${mpi_launcher_${mpi}}")
  set(CPACK_COMPONENT_${component}_DESCRIPTION "Mixture-of-Experts layers on OpenCL devices (ranks of ${mpi_name_${mpi}})
${about}
This is what the library loads where its ranks are processes of
${mpi_name_${mpi}}.")
  list(APPEND plugin_packages ${library}-${mpi})
endforeach()
list(JOIN plugin_packages ", " CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS)

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libmoecl-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${depends_on_library}, ocl-icd-opencl-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Mixture-of-Experts layers on OpenCL devices (development)
${about}
These are its C++17 and C99 headers, pages and examples.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME moecl-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${depends_on_library}")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "Mixture-of-Experts layers on OpenCL devices (command)
${about}
This is its command: it runs, checks and measures layers of checkpoints,
and says what the OpenCL devices of a machine can do.")
