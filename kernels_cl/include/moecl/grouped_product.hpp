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
/// Sums are f32, in an order that each variant fixes; i8 x i8 is summed exactly, in int32. So within a variant a row's
/// result does not depend on the other rows of the batch (with Args::scratch it may). Scales of groups of K multiply
/// the elements before the sum or, as exactly, the sums of their groups. A dense product is one expert with every row.
/// Variants avx512_bf16, amx_bf16 and neon_bf16 treat subnormal operands and sums as 0; neon_bf16 rounds sums to odd.
namespace moecl::grouped_gemm {

struct Args {
  /// Shape: [M, K] f32, f16, bf16, i8, f8_e4m3 or f8_e5m2; or u8 [M, ceil(K / 2)]: f4_e2m1 codes, the first of
  /// two in the low half of their byte
  TensorView a;
  /// optional. Shape: [R] i32: row j reads a[a_index[j] / index_divisor]; absent: a[j].
  /// Range: entries outside [0, M * index_divisor) leave their row of `out` untouched
  TensorView a_index;
  std::int32_t index_divisor = 1;  ///< K when a_index holds sorted slots and a holds tokens
  TensorView a_scale;              ///< optional, indexed as a. Shape: [M] f32, per token; or as a_group says
  /// Columns of `a` that share a scale; 0: all columns of a row. Otherwise a_scale is [M, ceil(K / a_group)] f32,
  /// f8_e4m3, or u8 (e8m0). Range: multiples of 16
  std::int64_t a_group = 0;
  std::int32_t a_zero_point = 0;  ///< subtracted from the elements of an i8 `a`. Range: [-128, 127], 0 for other types
  PackedWeights weights;
  /// optional, with row_ends. Shape: [E'] i32, on the device: the index of each expert's matrix in `weights`, which
  /// then has one matrix for each slot. Every expert with rows must have an index in range
  TensorView slots;
  TensorView sum_bias;  ///< optional, i8 x i8 without groups. Shape: [E', N] i32: added to the sums
  /// optional. Shape: [E', N], per channel, or [E', 1]. f32, f16, bf16, or i64 or u64 with f32 in the low half
  TensorView weight_scale;
  TensorView bias;            ///< optional. Shape: [E', N] or [E', 1]. f32, f16 or bf16
  bool a_scale_bias = false;  ///< a_scale multiplies the bias as well: (sum * weight_scale + bias) * a_scale
  TensorView row_ends;        ///< optional. Shape: [E] i32 cumulative, on the device; absent: one expert, all R rows
  std::int32_t first_expert = 0;     ///< weights hold E' of the E experts, from this one
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout; else batched: expert e's rows start at e * rows_per_expert
  /// optional, instead of row_ends. Shape: [E'] i32 cumulative, on the device: all experts share the one matrix of
  /// `weights` and all rows of `a`. Expert e sums only over k in [k_ends[e - 1], k_ends[e]), clipped to [0, K). Then
  /// R = E' * M, expert by expert; an empty window gives the bias.
  TensorView k_ends;
  /// Shape: [R, N] f32, f16, bf16; i8: rounded to the nearest, halves to even, in [-128, 127]; i32: the sums of
  /// i8 x i8, without any scale. Rows of other experts and past the valid ones are untouched
  TensorView out;
  /// optional, where `fuses_activation` is true: `out` is the activation of the product's rows. A gated one needs
  /// W = [gate | up] and makes `out` [R, N / 2]
  std::optional<Activation> activation = {};
  /// optional, where `fuses_quantization` is true: the next operator, whose x is `out`. Its codes and scales are stored
  /// instead of `out`, for the rows that `out` would have
  quantize_groups::Args quantization = {};
  /// optional, at least `scratch_bytes`, at a multiple of 16 bytes; contents undefined before and after. With it a
  /// dense product of few rows may be summed in K-slices (split-K), by work-groups that wait for each other. The number
  /// of slices depends on R, and so does the rounding of a row
  BufferView scratch = {};
  /// true: kernels of other queues run at the same time. Then at most the last work-group of a tile waits, for those
  /// launched before it. If all waited, two launches could keep each other off the compute units
  bool concurrent = false;
};

/// A row of the variant table.
struct Variant {
  const char* name;         ///< as logs, traces and summaries show it
  const char* written_for;  ///< the execution shape, in words
};

/// The rows by which a variant is chosen, spread over the experts.
struct Expected {
  std::int64_t rows = 0;  ///< 0: the rows and the experts of the product
  std::int64_t experts = 0;
};

struct Config {
  std::string variant;  ///< empty: chosen by operands, rows and device
  /// For products over parts of the same rows: with it all take the same variant, whatever part each has.
  Expected expected = {};
  /// How often the last K-slice of a tile polls for another slice, about a microsecond each, until that slice is late:
  /// the rows of the tile then become NaN
  std::int32_t patience = 1 << 21;
};

}  // namespace moecl::grouped_gemm
