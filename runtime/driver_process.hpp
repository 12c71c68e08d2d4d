#pragma once
// Detects fork(): the driver's threads stay in the parent, so a child that uses the driver would wait for them forever.

namespace moecl {

/// Call this before the first call of OpenCL. Errors: as expect_driver_process
void enter_driver_process();

/// Errors: unsupported  this process was forked from the one that used OpenCL first
/// Cost: none. A fork handler sets a flag; getpid at each launch would be a system call.
void expect_driver_process();

}  // namespace moecl
