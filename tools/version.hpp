#pragma once
#include <string>

namespace moecl::cli {

/// moecl's version and commit in the first line, then the versions of the OpenCL loader and of the drivers it finds.
std::string version();

}  // namespace moecl::cli
