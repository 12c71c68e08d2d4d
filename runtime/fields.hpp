#pragma once
// Texts and bytes one after the other, as helpers and the program cache pass them on. Reading them allocates nothing,
// and nor does letting go of them: what is out of memory gets an error.
#include <string>
#include <string_view>

namespace moecl {

void add_field(std::string& to, std::string_view field);
void add_field(std::string& to, long long number);
/// The next field, which it takes off `from`. Errors: invalid_data  there is none
std::string_view take_field(std::string_view& from);
/// Errors: invalid_data  there is none, or it is no number
long long take_number(std::string_view& from);

}  // namespace moecl
