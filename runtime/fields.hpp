#pragma once
// Sequences of text or byte fields, for messages of helpers and for the program cache. Neither reading nor releasing
// them allocates memory, so a process that is out of memory gets an error.
#include <string>
#include <string_view>

namespace moecl {

void add_field(std::string& to, std::string_view field);
void add_field(std::string& to, long long number);
/// Removes the next field from `from` and returns it. Errors: invalid_data  there is none
std::string_view take_field(std::string_view& from);
/// Errors: invalid_data  there is none, or it is no number
long long take_number(std::string_view& from);

}  // namespace moecl
