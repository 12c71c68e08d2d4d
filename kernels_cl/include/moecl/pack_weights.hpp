#pragma once
#include <moecl/device.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/packed_weights.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Repacks row-major matrices into (part of) experts of a PackedWeights: once when a model is loaded, or for one call.
namespace moecl::pack_weights {

struct Args {
  /// Shape: [rows, K] for one expert, [E', rows, K] for several; element (n, k) at n * stride + k * stride: swap both
  /// to pack transposed matrices. f32, f16, bf16 or i8, converted to the packed type (to i8 only from i8 and int4).
  /// i32 has eight int4 in a word, element 0 in the lowest bits, along rows or along K: that dimension counts words.
  TensorView source;
  PackedWeights packed;           ///< of f32, f16, bf16 or i8, without scales
  std::int64_t expert = 0;        ///< the (first) expert that is filled. Range: [0, packed.experts)
  std::int64_t first_column = 0;  ///< where source row 0 goes in N (gate rows at 0, up rows at I)
  /// optional, i8 and int4 to a float type. Shape: [E', G, rows] f32, f16, bf16, or i64 and u64 with f32
  /// in the low half, contiguous; G divides K. Packed is
  /// (source + offset) * scale of the group of K / G values of k, rounded once, to the packed type
  TensorView scale = {};
  TensorView offset = {};  ///< optional, with scale, of its shape
};

/// Why this cannot run there; empty when it can.
std::string reject(const Args& args, const Device& device);
/// Also zeroes the padding of the last panel when the source's last row is column N - 1.
/// Errors: invalid_argument  `reject` says why. Async: one kernel. Empty: no rows enqueue nothing
void enqueue(StreamView stream, const Args& args, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::pack_weights
