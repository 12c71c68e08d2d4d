#pragma once
#include <functional>
#include <string_view>

namespace moecl {

enum class LogLevel { debug, info, warning, error };

/// Receives one line. The library itself prints nothing. Threads: may be called from any thread that calls moecl.
using LogCallback = std::function<void(LogLevel, std::string_view message)>;

}  // namespace moecl
