#pragma once
// The operators in words, from their descriptions in the library.
#include <string>

namespace moecl::cli {

/// A block an operator: its inputs, parameters with defaults, outputs.
std::string operators_list();
/// The same as one JSON document.
std::string operators_json();
/// The same as the Markdown of OPERATORS.md, with roundings and refusals.
std::string operators_page();
/// The C header of a family, <moecl/npu_FAMILY.h>.
/// Errors: unsupported  there is no such family
std::string operators_header(const std::string& family);

}  // namespace moecl::cli
