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

}  // namespace moecl::cli
