#pragma once
#include <moecl/device.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/packed_weights.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Repacks row-major matrices into experts of a PackedWeights, or into some of their columns. Done once when a model is
/// loaded, or for a single call.
namespace moecl::pack_weights {

struct Args {
  /// Shape: [rows, K] for one expert, [E', rows, K] for several. Rows and K may have any stride: swap the two to pack
  /// transposed matrices. f32, f16, bf16 or i8, converted to the packed type (to i8 only from i8 and int4). i32 means
  /// words of eight int4, element 0 in the lowest bits, along rows or along K: that dimension counts words.
  TensorView source;
  PackedWeights packed;           ///< f32, f16, bf16 or i8, without scales
  std::int64_t expert = 0;        ///< the (first) expert to fill. Range: [0, packed.experts)
  std::int64_t first_column = 0;  ///< column (along N) that source row 0 becomes: gate rows at 0, up rows at I
  /// optional, where i8 or int4 become a float type. Shape: [E', G, rows], contiguous; f32, f16 or bf16, or i64 or u64
  /// with an f32 in the low half. G divides K; a group has K / G values of k. The packed value is
  /// (source + offset) * scale, with the scale and offset of its group, rounded once to the packed type
  TensorView scale = {};
  TensorView offset = {};  ///< optional, needs `scale`; of the same shape
};

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const Device& device);
/// Also zeroes the padding of the last panel if the source's last row becomes column N - 1.
/// Errors: invalid_argument  `reject` says why. Async: one kernel. Empty: without rows nothing is enqueued
void enqueue(StreamView stream, const Args& args, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::pack_weights
