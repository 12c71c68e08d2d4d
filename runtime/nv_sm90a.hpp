#pragma once
// Programs for NVIDIA's sm_90a (wgmma, setmaxnreg) by way of an OpenCL driver that compiles OpenCL C for sm_90 only.
//
// Such instructions stand in the inline assembly of the OpenCL C as PTX comments that begin with //A90. The driver's
// program "binary" is PTX text; without those marks, and for target sm_90a, it is handed back as a binary.
#include <string>
#include <string_view>

#include "runtime/kernel_key.hpp"

namespace moecl::nv_sm90a {

/// Whether a kernel's text, or the PTX that options have made of it, has such instructions.
bool is_meant_by(std::string_view text);

/// The driver's PTX of such a program, for sm_90a. One work-group a compute unit is promised, without which setmaxnreg
/// has no effect.
/// Errors: build_failed  the text is no PTX for sm_90
std::string assemble(std::string ptx);

/// A kernel that builds only where all this works.
KernelKey probe();

}  // namespace moecl::nv_sm90a
