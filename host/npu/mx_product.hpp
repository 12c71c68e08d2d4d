#pragma once
// The grouped product of OCP MX operands: codes with a power of two as the scale of each 32 elements along K.
#include <moecl/npu_matmul.hpp>

#include "host/npu/steps.hpp"

namespace moecl::npu {

/// Whether the operands are MX codes.
bool is_mx(const GroupedMatmulArgs& args);
/// Sets the output's shape. Errors: invalid_argument  the operands do not fit together; unsupported  anything but one
/// x, one weight, groups of rows and MX operands
void infer_mx(GroupedMatmulArgs& args);
/// @param row_ends  [E] i32
void run_mx_product(Steps& steps, const GroupedMatmulArgs& args, const TensorView& row_ends);

}  // namespace moecl::npu
