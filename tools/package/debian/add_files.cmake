# What Debian asks of every package beside what was installed: copyright and changelog. Its zsh looks for
# completions in another folder. Its linker finds the library without a path in the programs, and its pkg-config looks
# into a folder of the architecture.
function(compressed file)
  execute_process(COMMAND gzip -9n ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
string(TIMESTAMP year "%Y" UTC)
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} variable)
  set(package ${CPACK_DEBIAN_${variable}_PACKAGE_NAME})
  set(usr ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/copyright.in ${usr}/share/doc/${package}/copyright @ONLY)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/changelog.in ${usr}/share/doc/${package}/changelog @ONLY)
  compressed(${usr}/share/doc/${package}/changelog)
  if(component STREQUAL runtime OR component MATCHES "^moecl_mpi_")
    configure_file(${CMAKE_CURRENT_LIST_DIR}/library.lintian_overrides ${usr}/share/lintian/overrides/${package} COPYONLY)
  endif()
  file(GLOB programs ${usr}/bin/* ${usr}/lib/*.so.*.*.* ${usr}/lib/moecl_helpers/*)
  foreach(program IN LISTS programs)
    file(RPATH_REMOVE FILE ${program})
  endforeach()
endforeach()

set(dev ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/dev/usr)
execute_process(COMMAND dpkg-architecture -qDEB_HOST_MULTIARCH OUTPUT_VARIABLE architecture OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
file(READ ${dev}/lib/pkgconfig/moecl.pc text)
string(REGEX REPLACE "^prefix=[^\n]*" "prefix=/usr" text "${text}")
file(WRITE ${dev}/lib/${architecture}/pkgconfig/moecl.pc "${text}")
file(REMOVE_RECURSE ${dev}/lib/pkgconfig)

set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/tools/usr/share)
compressed(${share}/man/man1/moecl.1)
file(RENAME ${share}/zsh/site-functions ${share}/zsh/vendor-completions)
