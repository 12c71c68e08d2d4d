#pragma once
// Texts about the operators, from their descriptions in the library.
#include <string>
#include <string_view>

namespace moecl::cli {

/// A block for each operator: its inputs, parameters with defaults, outputs.
std::string operators_list();
/// The same as one JSON document.
std::string operators_json();
/// The same as the Markdown of OPERATORS.md, with roundings and refusals.
std::string operators_page();
/// The C header of a family, <moecl/npu_FAMILY.h>.
/// Errors: unsupported  there is no such family
std::string operators_header(const std::string& family);
/// The functions of Python, operators.py of the package.
std::string operators_python();
/// The C name: moecl_swiglu for npu_swiglu, moecl_c_ascend_swiglu for _C_ascend.npu_swiglu.
std::string c_operator_name(std::string_view name);

}  // namespace moecl::cli
