#pragma once
#include <moecl/device.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Dense and strided-batched products through CLBlast, over row-major weights: out[b] = a[b] x w[b]^T, in f32.
///
/// A trace shows the time of CLBlast's last kernel only, without the kernels that pad large matrices before it.
/// The alternative for a dense product is grouped_gemm with one expert. Recorded measurements choose between the two
/// for a device, see dense_backend.
namespace moecl::clblast_gemm {

struct Args {
  TensorView a;    ///< Shape: [M, K] or [B, M, K] f32, rows and matrices may be strided
  TensorView w;    ///< Shape: [N, K] or [B, N, K] f32
  TensorView out;  ///< Shape: [M, N] or [B, M, N] f32
};

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const Device& device);
/// Errors: invalid_argument  `reject` says why; build_failed, device_error or out_of_memory with CLBlast's status
/// Async:  CLBlast's kernels. The first call for a class of shapes compiles, which takes seconds on a CPU.
///         Empty: zero rows enqueue nothing
void enqueue(StreamView stream, const Args& args, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::clblast_gemm
