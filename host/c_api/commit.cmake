# Writes OUTPUT: the commit of the tree SOURCE, with "+" where files differ from it.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=12 --dirty=+ --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT
     "#include <moecl/moecl.h>\n\nconst char* moecl_commit(void) { return \"${commit}\"; }\n")
