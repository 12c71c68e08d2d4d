#pragma once
#include <string>

namespace moecl::cli {

/// moecl's version and commit in the first line, then the OpenCL loader's and those of the drivers that it finds.
std::string version();

}  // namespace moecl::cli
