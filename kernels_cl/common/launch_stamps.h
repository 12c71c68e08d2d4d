#pragma once
// The number of stamps of a launch, for C++ and OpenCL C.

enum { LAUNCH_STAMPS = 16 };  // stamps of a launch, which no other launch has; see stamps.hpp
