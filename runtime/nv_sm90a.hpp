#pragma once
// Builds programs for NVIDIA's sm_90a (wgmma, setmaxnreg) with an OpenCL driver that compiles OpenCL C for sm_90 only.
//
// The inline assembly of the OpenCL C has such instructions as PTX comments that begin with //A90. The driver's program
// "binary" is PTX text. Without those marks, and with target sm_90a, it is given to the driver as a binary.
#include <string>
#include <string_view>

#include "runtime/kernel_key.hpp"

namespace moecl::nv_sm90a {

/// Whether `text` has such instructions: a kernel's source, or the PTX that the driver made of it with some options.
bool is_meant_by(std::string_view text);

/// Turns the driver's PTX of such a program into PTX for sm_90a. It promises one work-group a compute unit; without
/// that promise setmaxnreg has no effect.
/// Errors: build_failed  the text is no PTX for sm_90
std::string assemble(std::string ptx);

/// A kernel that builds only where all this works.
KernelKey probe();

}  // namespace moecl::nv_sm90a
