# Of what is in the bundle: licenses/NAME.so.N of each shared library, licenses/NAME-dev of what is compiled in from
# headers and archives, as their Debian packages have them, and the texts that those name.
set(licenses $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/licenses)

function(write_license name package)
  file(READ /usr/share/doc/${package}/copyright text)
  file(WRITE ${licenses}/${name} "${text}")
  string(REGEX MATCHALL "/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]" named "${text}")
  file(COPY ${named} DESTINATION ${licenses}/common-licenses FOLLOW_SYMLINK_CHAIN)
endfunction()

file(GLOB bundled $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/*.so.* $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/fallback/*.so.*)
list(FILTER bundled EXCLUDE REGEX "/libmoecl\\.so")  # LICENSE
foreach(library IN LISTS bundled)
  get_filename_component(name ${library} NAME)
  execute_process(COMMAND dpkg-query --search "*/${name}" OUTPUT_VARIABLE owner ERROR_VARIABLE unknown)
  if(NOT owner MATCHES "^([^:,]+)")
    message(FATAL_ERROR "no Debian package has ${name}, so its license is not known: ${unknown}")
  endif()
  write_license(${name} ${CMAKE_MATCH_1})
endforeach()
foreach(package nlohmann-json3-dev libcli11-dev libspdlog-dev libxxhash-dev libgtest-dev)
  write_license(${package} ${package})
endforeach()
