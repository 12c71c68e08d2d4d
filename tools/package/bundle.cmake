# `cpack` writes moecl-<version>-linux-x86_64.tar.gz: the command, tests, benchmarks, library, headers, test data, and
# beside the library every shared library it needs that is not a part of libc, with its license. It runs from wherever it
# is unpacked.
#
# libstdc++ and libgcc_s go to lib/fallback, which nothing searches by itself: an OpenCL driver of a newer system needs
# that system's own, and the first one loaded serves the whole process.
set(bundled moecl moecl_command moecl_tests moecl_bench)
set_target_properties(moecl_tests moecl_bench PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")

set(part COMPONENT bundle EXCLUDE_FROM_ALL)
install(TARGETS ${bundled} RUNTIME_DEPENDENCY_SET needed RUNTIME ${part} LIBRARY ${part})
set(libc "^ld-linux" "^lib(c|m|dl|rt|pthread)\\.so")
set(compiler "^lib(stdc\\+\\+|gcc_s)\\.so")
install(RUNTIME_DEPENDENCY_SET needed PRE_EXCLUDE_REGEXES ${libc} ${compiler} LIBRARY ${part})
install(RUNTIME_DEPENDENCY_SET needed PRE_EXCLUDE_REGEXES "." PRE_INCLUDE_REGEXES ${compiler}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/fallback ${part})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/data DESTINATION tests ${part})
install(FILES ${PROJECT_SOURCE_DIR}/host/ROUTER_SPEC.md DESTINATION host ${part})  # whose example a test reads
install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/gpu_check ${PROJECT_SOURCE_DIR}/bench/peers/torch_products.py TYPE BIN ${part})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION . ${part})
install(SCRIPT ${PROJECT_SOURCE_DIR}/tools/package/licenses.cmake ${part})
