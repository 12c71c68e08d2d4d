#pragma once
// Waits that end even where the driver never completes an event.
#include <moecl/event.hpp>

#include <chrono>
#include <functional>

namespace moecl {

class Context;

/// Whether the event completes within `time` and before `given_up` returns true. Polls the event, since clWaitForEvents
/// does not return where a driver refuses to set a user event that commands wait for.
/// Errors: device_error  a command failed
bool completes_within(const Event& event, std::chrono::milliseconds time, const std::function<bool()>& given_up = {});

/// Call this before a driver call that waits for `event`. While a UserEvent of the context is unset, commands may wait
/// for it, and the driver may refuse to set it: then this stops the host until `event` completes or fails. Otherwise it
/// does nothing. Errors: device_error  the driver refused to set a UserEvent, and `event` did not end for 2 s
void expect_end(Context& context, const Event& event);
/// The same for all commands of the queue.
void expect_end(Context& context, _cl_command_queue* queue);
/// For a command that the host has waited for. Errors: device_error  this command or one before it failed
void expect_done(Context& context, Event event);

}  // namespace moecl
