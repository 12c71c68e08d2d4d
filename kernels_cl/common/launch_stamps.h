#pragma once
// Read by C++ and OpenCL C alike.

enum { LAUNCH_STAMPS = 16 };  // numbers of a launch that no other launch has, see stamps.hpp
