#include <moecl/environment.hpp>

#include <cstdlib>

#include "runtime/check.hpp"

namespace moecl {

std::optional<std::string> environment(std::string_view name) {
  for (const EnvironmentVariable& variable : environment_variables) {
    if (variable.name != name) continue;
    const char* value = std::getenv(variable.name.data());
    return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
  }
  fail(ErrorCode::invalid_argument, "environment: no variable {} in the table", name);
}

}  // namespace moecl
