#pragma once
#include <moecl/combine.hpp>
#include <moecl/device.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Adds weighted rows to the tokens they belong to: out[t] = sum of weights[j] * rows[j] over the rows j with
/// destinations[j] == t, in ascending j (+ shared). The rows are sorted by destination, then combined.
///
/// No atomics: bitwise reproducible. A token without rows becomes 0, or its shared part.
/// Source: npu_grouped_matmul_finalize_routing and the padded npu_moe_token_unpermute of the Ascend operators
namespace moecl::scatter_add {

struct Args {
  TensorView rows;          ///< Shape: [R, H] f32, f16 or bf16
  TensorView destinations;  ///< Shape: [R] i32 or i64. Range: [0, T); others set the fault word, their row is skipped
  TensorView row_ends;      ///< optional. Shape: [E] i32, cumulative: rows past the last end are skipped
  TensorView weights;       ///< optional. Shape: [R] f32, f16 or bf16; absent means 1
  TensorView shared;        ///< optional. Shape: [n, H]: added, times shared_scale, to the tokens from shared_token on
  float shared_scale = 1;
  std::int64_t shared_token = 0;
  TensorView out;      ///< Shape: [T, H] f32, f16 or bf16
  TensorView fault;    ///< optional in/out. Shape: [4] i32, see fault.hpp
  BufferView scratch;  ///< at least scratch_bytes(R, T, caps)
};

/// Units: bytes.
std::uint64_t scratch_bytes(std::int64_t rows, std::int64_t tokens, const DeviceCaps& caps);

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const combine::Config& config, const Device& device);
/// Errors: invalid_argument  `reject` says why
/// Async:  a sort and three kernels
void enqueue(StreamView stream, const Args& args, const combine::Config& config = {}, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::scatter_add
