#pragma once
#include <moecl/cl_handles.hpp>

#include <atomic>
#include <cstdint>
#include <memory>

namespace moecl {

/// The host's steady clock.
std::int64_t now_ns() noexcept;

/// When a command ended, as now_ns; 0 until then. Shared with the driver's callback, which may outlast the reader.
using CompletionTime = std::shared_ptr<std::atomic<std::int64_t>>;

/// A callback of the driver sets the time: at once if the command has ended, even by failing. PoCL 3.1 does not call
/// back for a command that fails later. Errors: device_error
CompletionTime watch_completion(_cl_event* event);

}  // namespace moecl
