#pragma once
#include <moecl/code_layout.hpp>
#include <moecl/device.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/packed_weights.hpp>

/// Repacks a quantized matrix, as a checkpoint stores it, into columns of an expert of a PackedWeights: its codes, and
/// the scales and zero points of groups of K.
namespace moecl::pack_codes {

struct Args {
  BufferView source;  ///< from the unit codes.first_unit() on
  CodeLayout codes;   ///< of [rows, K]; u8 and u4 become i8 and i4
  PackedWeights packed;
  std::int64_t expert = 0;
  std::int64_t first_column = 0;  ///< where source row 0 goes in N (gate rows at 0, up rows at I)
  /// With packed.scale, of its type, strided as it may be. Shape: [ceil(rows / group_rows), G'], or with groups in
  /// pairs or the like [.., ceil(G' / P), P]: group g is [g / P, g % P]
  TensorView scale = {};
  std::int64_t group_rows = 1;  ///< rows that share a scale
  BufferView zero = {};         ///< optional, with packed.zero: from the unit zero_codes.first_unit() on
  CodeLayout zero_codes = {};   ///< of the scale's shape
  std::int32_t zero_add = 0;    ///< added to what `zero` stores
  /// optional. Shape: [G] i32: the source's group that is each group of `packed`; absent: the same one.
  /// Range: [0, G')
  TensorView source_group = {};
};

/// Why this cannot run there; empty when it can.
std::string reject(const Args& args, const Device& device);
/// Also zeroes the padding of the last panel when the source's last row is column N - 1.
/// Errors: invalid_argument  `reject` says why. Async: a kernel each for codes, scales and zero points
void enqueue(StreamView stream, const Args& args, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::pack_codes
