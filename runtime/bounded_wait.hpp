#pragma once
// Waits that end whatever the driver says.
#include <moecl/event.hpp>

#include <chrono>
#include <functional>

namespace moecl {

/// Whether the event completes within that time, or before `given_up` says true. By looking at it: clWaitForEvents does
/// not return where a driver refuses to set a user event that commands wait for.
/// Errors: device_error  a command failed
bool completes_within(const Event& event, std::chrono::milliseconds time, const std::function<bool()>& given_up = {});

}  // namespace moecl
