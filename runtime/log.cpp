#include <moecl/log.hpp>

#include <array>

namespace moecl {
namespace {

constexpr std::array<const char*, 5> names{"debug", "info", "warning", "error", "off"};
static_assert(names.size() == static_cast<std::size_t>(LogLevel::off) + 1);

}  // namespace

const char* name(LogLevel level) noexcept { return names[static_cast<std::size_t>(level)]; }

std::optional<LogLevel> log_level_from_name(std::string_view name) noexcept {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<LogLevel>(i);
  return std::nullopt;
}

}  // namespace moecl
