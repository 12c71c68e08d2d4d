#pragma once
// fork(): a driver's threads stay in the parent, so a child that goes on with the driver would wait for them forever.

namespace moecl {

/// Before the first call of OpenCL. Errors: as expect_driver_process
void enter_driver_process();

/// Errors: unsupported  this process was forked from the one that used OpenCL first. Cost: getpid, some 50 ns
void expect_driver_process();

}  // namespace moecl
