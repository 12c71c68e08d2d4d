#pragma once
// Lists of numbers in JSON files that people write.
#include <moecl/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace moecl::cli {

/// Appends the numbers of nested lists of these sizes, in order. @param what  for errors: what the numbers are
/// Errors: invalid_data
template <class Number>
void append_numbers(std::vector<Number>& to, const nlohmann::json& from, const std::string& what,
                    std::span<const std::int32_t> sizes) {
  if (sizes.empty()) {
    const bool fits = std::is_integral_v<Number> ? from.is_number_integer() : from.is_number();
    if (!fits)
      throw Error(ErrorCode::invalid_data, fmt::format("{}: expected numbers, got {}", what, from.type_name()));
    to.push_back(from.get<Number>());
    return;
  }
  if (!from.is_array() || from.size() != static_cast<std::size_t>(sizes.front()))
    throw Error(ErrorCode::invalid_data, fmt::format("{}: expected a list of {}, got {}", what, sizes.front(),
                                                     from.is_array() ? std::to_string(from.size()) : from.type_name()));
  for (const nlohmann::json& item : from) append_numbers(to, item, what, sizes.subspan(1));
}

}  // namespace moecl::cli
