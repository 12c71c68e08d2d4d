#pragma once
#include <moecl/gated_activation.hpp>
#include <moecl/packed_weights.hpp>
#include <moecl/quantize_groups.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <optional>
#include <string>

/// For each expert e, its rows times its weights:
///
///     out[j] = ((a[index[j] / divisor] - a_zero_point) x W_e^T + sum_bias_e) * weight_scale_e * a_scale + bias_e
///
/// Sums are f32, in an order that each variant fixes (i8 x i8: exact, in int32), so within one variant a row's result
/// does not depend on the other rows of the batch (with Args::scratch it may). Scales for groups of K multiply the
/// elements before the sum, or as exactly the sums of their groups. A dense product is one expert with every row.
/// Variants avx512_bf16, amx_bf16 and neon_bf16 count subnormal operands and sums as 0; the last rounds sums to odd.
namespace moecl::grouped_gemm {

struct Args {
  /// Shape: [M, K] f32, f16, bf16, i8, f8_e4m3 or f8_e5m2; or u8 [M, ceil(K / 2)]: f4_e2m1 codes, the first in the low
  /// half of its byte
  TensorView a;
  /// optional. Shape: [R] i32: row j reads a[a_index[j] / index_divisor]; absent: a[j].
  /// Range: entries outside [0, M * index_divisor) leave their row of `out` untouched
  TensorView a_index;
  std::int32_t index_divisor = 1;  ///< K when a_index holds sorted slots and a holds tokens
  TensorView a_scale;              ///< optional, indexed as a. Shape: [M] f32, per token; or with a_group as there
  /// Columns of `a` that share a scale, 0: all of a row. Else a_scale is [M, ceil(K / a_group)] f32, f8_e4m3, or u8:
  /// e8m0. Range: multiples of 16
  std::int64_t a_group = 0;
  std::int32_t a_zero_point = 0;  ///< what an element of an i8 `a` counts from. Range: [-128, 127], 0 for other types
  PackedWeights weights;
  /// optional, of row_ends. Shape: [E'] i32, on the device: which of the matrices of `weights` is that of each expert;
  /// `weights` then has as many as there are slots. Experts with rows have one in range
  TensorView slots;
  TensorView sum_bias;  ///< optional, i8 x i8 without groups. Shape: [E', N] i32: added to the sums
  /// optional. Shape: [E', N], per channel, or [E', 1]. f32, f16, bf16, or i64 and u64 with f32 in the low half
  TensorView weight_scale;
  TensorView bias;            ///< optional. Shape: [E', N] or [E', 1]. f32, f16 or bf16
  bool a_scale_bias = false;  ///< a_scale multiplies the bias as well: (sum * weight_scale + bias) * a_scale
  TensorView row_ends;        ///< optional. Shape: [E] i32 cumulative, on the device; absent: one expert, all R rows
  std::int32_t first_expert = 0;     ///< weights hold E' of the E experts, from this one
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout; else batched: expert e's rows start at e * rows_per_expert
  /// optional, instead of row_ends. Shape: [E'] i32 cumulative, on the device: all experts share the one matrix of
  /// `weights` and all rows of `a`, and expert e multiplies only with k in [k_ends[e - 1], k_ends[e]), cut to [0, K).
  /// Then R = E' * M, expert by expert; an empty window gives the bias.
  TensorView k_ends;
  /// Shape: [R, N] f32, f16, bf16; i8: rounded to the nearest, halves to even, in [-128, 127]; i32: the sums of
  /// i8 x i8, without any scale. Rows of other experts and past the valid ones are untouched
  TensorView out;
  /// optional, where `fuses_activation`: `out` is the activation of these rows, a gated one [R, N / 2] of W = [gate |
  /// up]
  std::optional<Activation> activation = {};
  /// optional, where `fuses_quantization`: the next operator, whose x is `out`; its codes and scales are stored instead
  /// of `out`, for the rows that `out` would have
  quantize_groups::Args quantization = {};
  /// optional, at least `scratch_bytes` from a multiple of 16; contents undefined before and after. With it a dense
  /// product of few rows may be summed in slices of K, by work-groups that wait for each other: how many depends on R,
  /// and so do a row's roundings
  BufferView scratch = {};
  /// Kernels of other queues run at the same time: at most the last work-group of a tile waits, for those launched
  /// before it. If all waited, two launches could keep each other from the compute units
  bool concurrent = false;
};

/// A row of the variant table.
struct Variant {
  const char* name;         ///< as logs, traces and summaries show it
  const char* written_for;  ///< the execution shape, in words
};

/// Rows that a choice goes by, spread over the experts.
struct Expected {
  std::int64_t rows = 0;  ///< 0: those of the product, over its experts
  std::int64_t experts = 0;
};

struct Config {
  std::string variant;  ///< empty: chosen by operands, rows and device
  /// Products over parts of the same rows, which take one variant then, whatever part each has.
  Expected expected = {};
  /// How often a tile's last slice of K looks for another one until that is late, about a microsecond each: the rows of
  /// its tile then become NaN
  std::int32_t patience = 1 << 21;
};

}  // namespace moecl::grouped_gemm
