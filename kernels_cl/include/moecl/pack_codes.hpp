#pragma once
#include <moecl/code_layout.hpp>
#include <moecl/device.hpp>
#include <moecl/operator_cost.hpp>
#include <moecl/packed_weights.hpp>

/// Repacks a quantized matrix from the layout of a checkpoint into columns of one expert of a PackedWeights. It repacks
/// the codes, and the scales and zero points of the groups along K.
namespace moecl::pack_codes {

struct Args {
  BufferView source;  ///< begins with the unit codes.first_unit()
  CodeLayout codes;   ///< of `source`, [rows, K]; u8 and u4 are packed as i8 and i4
  PackedWeights packed;
  std::int64_t expert = 0;
  std::int64_t first_column = 0;  ///< column (along N) that source row 0 becomes: gate rows at 0, up rows at I
  /// Present if packed.scale is, of the same type, with any strides. Shape: [ceil(rows / group_rows), G'], where G'
  /// counts the groups of the source. If P groups are stored together (pairs, for example): [.., ceil(G' / P), P], with
  /// group g at [g / P, g % P]
  TensorView scale = {};
  std::int64_t group_rows = 1;  ///< rows that share a scale
  BufferView zero = {};         ///< present if packed.zero is; begins with the unit zero_codes.first_unit()
  CodeLayout zero_codes = {};   ///< of `zero`, a matrix of the shape of `scale`
  std::int32_t zero_add = 0;    ///< added to each zero point in `zero`
  /// optional. Shape: [G] i32: the group of the source that becomes group g of `packed`. Absent: group g.
  /// Range: [0, G')
  TensorView source_group = {};
};

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const Device& device);
/// Also zeroes the padding of the last panel if the source's last row becomes column N - 1.
/// Errors: invalid_argument  `reject` says why. Async: one kernel each for codes, scales and zero points
void enqueue(StreamView stream, const Args& args, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::pack_codes
