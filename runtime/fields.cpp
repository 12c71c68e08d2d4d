#include "runtime/fields.hpp"

#include <charconv>
#include <cstdint>
#include <cstring>

#include "runtime/check.hpp"

namespace moecl {

void add_field(std::string& to, std::string_view field) {
  const std::uint64_t size = field.size();
  to.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(field);
}

void add_field(std::string& to, long long number) { add_field(to, std::to_string(number)); }

std::string_view take_field(std::string_view& from) {
  std::uint64_t size = 0;
  if (from.size() >= sizeof(size)) {
    std::memcpy(&size, from.data(), sizeof(size));
    from.remove_prefix(sizeof(size));
  } else {
    size = from.size() + 1;
  }
  if (size > from.size()) fail(ErrorCode::invalid_data, "a field of a message is missing");
  const std::string_view field = from.substr(0, size);
  from.remove_prefix(size);
  return field;
}

long long take_number(std::string_view& from) {
  const std::string_view text = take_field(from);
  long long number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    fail(ErrorCode::invalid_data, "expected a number in a message, got '{}'", text);
  return number;
}

}  // namespace moecl
