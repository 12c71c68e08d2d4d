#pragma once
#include <moecl/cl_handles.hpp>

#include <atomic>
#include <cstdint>
#include <memory>

namespace moecl {

/// The host's steady clock.
std::int64_t now_ns() noexcept;

/// When a command ended, as now_ns; 0 before. Shared with the driver's callback, which may outlast its reader.
using CompletionTime = std::shared_ptr<std::atomic<std::int64_t>>;

/// Set by a callback of the driver: at once where the command has ended, whether it failed or not. PoCL 3.1 does not
/// call for what fails later. Errors: device_error
CompletionTime watch_completion(_cl_event* event);

}  // namespace moecl
