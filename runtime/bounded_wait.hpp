#pragma once
// Waits that end whatever the driver says.
#include <moecl/event.hpp>

#include <chrono>
#include <functional>

namespace moecl {

class Context;

/// Whether the event completes within that time, or before `given_up` says true. By looking at it: clWaitForEvents does
/// not return where a driver refuses to set a user event that commands wait for.
/// Errors: device_error  a command failed
bool completes_within(const Event& event, std::chrono::milliseconds time, const std::function<bool()>& given_up = {});

/// Before a call of the driver that waits for `event`. Where a UserEvent of the context is unset, which commands may
/// wait for and the driver may refuse to set, it stops the host until `event` completes or fails; elsewhere it does
/// nothing. Errors: device_error  the driver refused one, and `event` did not end for 2 s
void expect_end(Context& context, const Event& event);
/// The same of all that the queue has.
void expect_end(Context& context, _cl_command_queue* queue);
/// Of a command that the host has waited for. Errors: device_error  it failed, or one before it
void expect_done(Context& context, Event event);

}  // namespace moecl
