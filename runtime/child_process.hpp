#pragma once
// A program that is run aside, so that what crashes or hangs there does not do so here.
#include <chrono>
#include <string>
#include <vector>

namespace moecl {

/// What the program writes to its standard output. Its standard error is this process'.
///
/// Stops the host until the program closes its output; one that takes longer than `deadline` is killed. Started by
/// posix_spawn, which is safe in a process with threads and an initialised driver, where going on after fork is not.
/// Errors: device_error  it could not be started, crashed, failed, or took too long
std::string output_of(const std::string& program, const std::vector<std::string>& arguments,
                      std::chrono::milliseconds deadline);

/// Path of a program that is installed with this library, in a folder beside it.
std::string helper_program(const std::string& name);

}  // namespace moecl
