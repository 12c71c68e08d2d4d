#pragma once
// fork(): a driver's threads stay in the parent, so a child that goes on with the driver would wait for them forever.

namespace moecl {

/// Before the first call of OpenCL. Errors: as expect_driver_process
void enter_driver_process();

/// Errors: unsupported  this process was forked from the one that used OpenCL first. Cost: none;
/// fork() itself tells, where getpid at each launch would be a system call
void expect_driver_process();

}  // namespace moecl
