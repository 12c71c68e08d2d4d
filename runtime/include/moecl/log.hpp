#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace moecl {

/// How much a line matters; `off` is only a threshold.
enum class LogLevel : std::uint8_t { debug, info, warning, error, off };

/// "debug", "info", "warning", "error", "off"
const char* name(LogLevel level) noexcept;
/// nullopt where there is no such level.
std::optional<LogLevel> log_level_from_name(std::string_view name) noexcept;

/// Receives one line. The library itself prints nothing. Must not throw. Threads: may be called from any thread that
/// calls moecl.
using LogCallback = std::function<void(LogLevel, std::string_view message)>;

}  // namespace moecl
