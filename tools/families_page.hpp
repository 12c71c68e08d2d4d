#pragma once
// Pages about the model families, from the table in the library.
#include <string>

namespace moecl::cli {

/// The Markdown of FAMILIES.md: what each family needs, the families inside others, the named shapes.
std::string families_page();
/// Its table of families and quantization schemes.
std::string schemes_table();
/// A list with one line per model_type that can be read.
std::string families_list();

}  // namespace moecl::cli
