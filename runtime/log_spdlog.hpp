#pragma once
// For programs that log through spdlog; embedders write a LogCallback of their own.
#include <moecl/log.hpp>

#include <spdlog/logger.h>

#include <memory>

namespace moecl {

/// Sends moecl's lines to `logger`, which applies its own level on top of the context's.
inline LogCallback log_to(std::shared_ptr<spdlog::logger> logger) {
  return [logger = std::move(logger)](LogLevel level, std::string_view message) {
    constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                    spdlog::level::err, spdlog::level::off};
    logger->log(levels[static_cast<std::size_t>(level)], "{}", message);
  };
}

}  // namespace moecl
