# Writes OUTPUT: the commit of the tree SOURCE, with "+" where files differ from it.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --dirty=+ --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT
     "namespace moecl::bench {\nextern const char* const commit;\nconst char* const commit = \"${commit}\";\n}  // namespace moecl::bench\n")
