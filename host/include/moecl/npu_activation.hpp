#pragma once
#include <moecl/npu.hpp>

namespace moecl::npu {

/// y = A * sigmoid(A) * B, A and B the halves of x along `dim`; f32 inside, rounded once to x's dtype.
///
/// Source: npu_swiglu
struct SwigluArgs {
  TensorView x;           ///< Shape: [..., 2D, ...] f32, f16 or bf16
  std::int64_t dim = -1;  ///< which dimension; negative counts from the last
  TensorView y;           ///< out. Shape: [..., D, ...], x's dtype
};
void infer(SwigluArgs& args);
std::uint64_t workspace_bytes(const SwigluArgs& args, const DeviceCaps& caps);
OperatorCost cost(const SwigluArgs& args);
void swiglu(StreamView stream, const SwigluArgs& args, const Call& how = {});

}  // namespace moecl::npu
