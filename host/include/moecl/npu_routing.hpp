#pragma once
#include <moecl/npu.hpp>

#include <optional>

/// Operators that bring tokens into expert order and back. N tokens, K experts each, S = N * K slots, H hidden size.
namespace moecl::npu {

/// Gathers rows in expert order. The first version: experts are not counted, and row_idx numbers the slots.
///
/// Source: npu_moe_init_routing
struct MoeInitRoutingArgs {
  TensorView x;                    ///< Shape: [N, H] f32, f16 or bf16
  TensorView row_idx;              ///< Shape: [N, K] i32, each of [0, S) once; column-major: row_idx[i, k] = k * N + i
  TensorView expert_idx;           ///< Shape: [N, K] i32. Range: [0, 2^24)
  std::int64_t active_num = 0;     ///< limits the number of rows to min(active_num, N) * K
  TensorView expanded_x;           ///< out. Shape: [min(active_num, N) * K, H], x's dtype
  TensorView expanded_row_idx;     ///< out. Shape: [S] i32: element i is the row of the slot with row_idx i
  TensorView expanded_expert_idx;  ///< out. Shape: [S] i32: the experts of the rows, ascending
};
void infer(MoeInitRoutingArgs& args);
std::uint64_t workspace_bytes(const MoeInitRoutingArgs& args, const Device& device);
OperatorCost cost(const MoeInitRoutingArgs& args);
void moe_init_routing(StreamView stream, const MoeInitRoutingArgs& args, const Call& how = {});

/// Cumulative rows of the experts, from the sorted ids that moe_init_routing gives.
///
/// Source: npu_moe_compute_expert_tokens
struct MoeComputeExpertTokensArgs {
  TensorView sorted_expert_for_source_row;  ///< Shape: [S] i32, ascending
  std::int64_t num_expert = 0;              ///< Range: [1, 2^31)
  TensorView total_rows_before_expert;      ///< out. Shape: [num_expert] i32: rows up to and including each expert
};
void infer(MoeComputeExpertTokensArgs& args);
std::uint64_t workspace_bytes(const MoeComputeExpertTokensArgs& args, const Device& device);
OperatorCost cost(const MoeComputeExpertTokensArgs& args);
void moe_compute_expert_tokens(StreamView stream, const MoeComputeExpertTokensArgs& args, const Call& how = {});

/// How quant_mode 1 rounds ties.
enum class RoutingRounding : std::uint8_t {
  ties_even,        ///< to the even number
  general_template  ///< away from zero, as the NPU's general template
};

/// Gathers rows in expert order, and quantizes them with a quant_mode other than -1.
///
/// Slots whose expert is outside active_expert_range are inactive. The M active slots become the rows [0, M), by
/// expert, then by slot. Rows from min(M, active_num) on are not written. With drop_pad_mode 1 each expert has
/// expert_capacity rows: rows beyond that are dropped, missing rows are 0.
///
/// quant_mode 0 to 17 takes f32, f16 or bf16. `largest` is the largest number of the code type.
///   0, 1    int8: 0 static, 1 with a scale for each row
///   13      int4 with a scale for each row
///   2, 3    MX e5m2, e4m3, as mx_quantize, with scale 2^ceil(log2(amax / largest)), at least 2^-126
///   16, 17  as 2, 3 with amax at least 1e-4
///   9       MX e2m1 with scale 2^(floor(log2(amax)) - 2)
///   11, 12  e5m2, e4m3 with a scale amax / largest for each 128 columns
///   4, 5    as 11, 12 with the scale rounded up to a power of two
///   14, 15  as 4, 5 with amax at least 1e-4
///   6       HiFloat8 of x, ties away from zero; infinity from 1.25 * 2^15 on
///   7, 8    HiFloat8 of x * scale, of x / (amax / 2^15), ties away from zero; saturated
/// MX blocks of zeros have scale byte 0, except in 16 and 17. 128 columns of zeros have scale 0 and codes 0.
/// Source: npu_moe_init_routing_v2 and its test in op-plugin
struct MoeInitRoutingV2Args {
  TensorView x;           ///< Shape: [N, H] f32, f16, bf16, or i8 and u8 codes, which quant_mode -1 moves
  TensorView expert_idx;  ///< Shape: [N, K] i32; any value: experts outside the range are inactive
  /// optional. quant_mode -1: scales that move with the rows, [N] f32, or n for each row, [N, n] or [N, n / 2, 2] u8
  /// (e8m0). 0 and 7: [1] f32. 1 and 13: smooth vectors, [range, H] or [1, H] f32
  TensorView scale;
  TensorView offset;                              ///< optional f32. quant_mode 0: [1]; 7: not read
  std::int64_t active_num = -1;                   ///< maximum number of rows; below 1: S
  std::int64_t expert_capacity = -1;              ///< rows of each expert with drop_pad_mode 1
  std::int64_t expert_num = -1;                   ///< E. Range: [1, 2^31)
  std::int64_t drop_pad_mode = 0;                 ///< 0 dropless, 1 drop and pad (all experts)
  std::int64_t expert_tokens_num_type = 0;        ///< 0 cumulative, 1 counts, 2 pairs; drop_pad_mode 1: always counts
  bool expert_tokens_num_flag = false;            ///< whether expert_tokens is written
  std::int64_t quant_mode = -1;                   ///< -1 none, else see above. Range: [-1, 17] without 10
  std::vector<std::int64_t> active_expert_range;  ///< [first, end); empty: [0, expert_num)
  std::int64_t row_idx_type = 0;                  ///< 0: row of each slot, -1 if it has none; 1: slot of each row
  RoutingRounding rounding = RoutingRounding::ties_even;
  /// out. Shape: [rows, H] or [E, expert_capacity, H]; x's dtype, i8 for int8, u8 for other codes, with H / 2 instead
  /// of H for e2m1 and int4
  TensorView expanded_x;
  TensorView expanded_row_idx;  ///< out. Shape: [S] i32
  TensorView expert_tokens;     ///< out, if asked for. Shape: [range] i64; pairs: [expert_num, 2] up to a (0, 0);
                                ///< counts slots before any is dropped
  /// out; not with quant_mode 0, 6 and 7. Shape: [rows] f32; MX: [rows, 2 * ceil(H / 64)] u8, e8m0, padded with 0; fp8:
  /// [rows, ceil(H / 128)] f32, with 11 and 12 [rows, ceil(H / 256), 2] f32, padded with 0; quant_mode -1: as `scale`
  TensorView expanded_scale;
};
void infer(MoeInitRoutingV2Args& args);
std::uint64_t workspace_bytes(const MoeInitRoutingV2Args& args, const Device& device);
OperatorCost cost(const MoeInitRoutingV2Args& args);
void moe_init_routing_v2(StreamView stream, const MoeInitRoutingV2Args& args, const Call& how = {});

/// Sorts tokens by index; tokens with equal indices stay in slot order.
///
/// Source: npu_moe_token_permute
struct MoeTokenPermuteArgs {
  TensorView tokens;                           ///< Shape: [N, H] f32, f16, bf16, i8 or u8
  TensorView indices;                          ///< Shape: [N] or [N, K], i32 or i64. Range: [0, 2^24)
  std::optional<std::int64_t> num_out_tokens;  ///< none or 0: all S rows; v > 0: min(v, S); v < 0: max(S + v, 0)
  bool padded_mode = false;                    ///< refused
  TensorView permuted_tokens;                  ///< out. Shape: [rows, H], tokens' dtype
  TensorView sorted_indices;                   ///< out. Shape: [S] i32: the row of each slot, even if it is cut off
};
void infer(MoeTokenPermuteArgs& args);
std::uint64_t workspace_bytes(const MoeTokenPermuteArgs& args, const Device& device);
OperatorCost cost(const MoeTokenPermuteArgs& args);
void moe_token_permute(StreamView stream, const MoeTokenPermuteArgs& args, const Call& how = {});

/// Weighted sum of each token's rows: sum over k of probs[t, k] * permuted_tokens[sorted_indices[t * K + k]].
///
/// A row index outside [0, R) is not read, nor is a row with probability 0. With padded_mode row j is added to token
/// sorted_indices[j] instead, times its own probability.
/// Source: npu_moe_token_unpermute; padded_mode: unpermute_with_padded_tokens of MindSpeed
struct MoeTokenUnpermuteArgs {
  TensorView permuted_tokens;  ///< Shape: [R, H] f32, f16 or bf16
  TensorView sorted_indices;   ///< Shape: [S] i32; padded [R]
  TensorView probs;            ///< optional f32, f16 or bf16. Shape: [N, K]; padded: R elements. Absent: 1, with K = 1
  bool padded_mode = false;
  std::vector<std::int64_t> restore_shape;  ///< with padded_mode: [N, H]
  TensorView unpermuted_tokens;             ///< out. Shape: [N, H], permuted_tokens' dtype
};
void infer(MoeTokenUnpermuteArgs& args);
std::uint64_t workspace_bytes(const MoeTokenUnpermuteArgs& args, const Device& device);
OperatorCost cost(const MoeTokenUnpermuteArgs& args);
void moe_token_unpermute(StreamView stream, const MoeTokenUnpermuteArgs& args, const Call& how = {});

/// Brings rows from the order rank, expert into the order expert, rank. R ranks, E local experts.
///
/// Source: npu_moe_re_routing
struct MoeReRoutingArgs {
  TensorView tokens;                       ///< Shape: [A, H] f32, f16, bf16, i8 or u8
  TensorView expert_token_num_per_rank;    ///< Shape: [R, E] i32 or i64. Range: not negative, sum A
  TensorView per_token_scales;             ///< optional. Shape: [A] f32
  std::int64_t expert_token_num_type = 1;  ///< 1: counts
  std::int64_t idx_type = 0;               ///< 0: input row of each output row
  TensorView permute_tokens;               ///< out. Shape: [A, H], tokens' dtype
  TensorView permute_per_token_scales;     ///< out, with per_token_scales. Shape: [A] f32
  TensorView permute_token_idx;            ///< out. Shape: [A] i32
  TensorView expert_token_num;             ///< out. Shape: [E], dtype of expert_token_num_per_rank
};
void infer(MoeReRoutingArgs& args);
std::uint64_t workspace_bytes(const MoeReRoutingArgs& args, const Device& device);
OperatorCost cost(const MoeReRoutingArgs& args);
void moe_re_routing(StreamView stream, const MoeReRoutingArgs& args, const Call& how = {});

/// out[i] = sum over k of scales[i, k] * (rows[idx] + bias[expert[i, k]]), + skip1[i] + skip2[i], with
/// idx = expanded_src_to_dst_row[k * N + i] (drop_pad_mode 0, 1) or [i * K + k] (2, 3).
///
/// Source: npu_moe_finalize_routing
struct MoeFinalizeRoutingArgs {
  TensorView expanded_permuted_rows;   ///< Shape: [R, H], or [E, C, H] in modes 1 and 3; f32, f16 or bf16
  TensorView skip1;                    ///< optional. Shape: [N, H], the rows' dtype
  TensorView skip2;                    ///< optional, needs skip1. Shape: [N, H], the rows' dtype
  TensorView bias;                     ///< optional. Shape: [E, H], the rows' dtype
  TensorView scales;                   ///< optional. Shape: [N, K] f32, f16 or bf16; absent: 1, K = 1
  TensorView expanded_src_to_dst_row;  ///< Shape: [S] i32. Range: [0, R), in modes 1 and 3 also -1: a row of zeros
  TensorView export_for_source_row;    ///< with bias. Shape: [N, K] i32. Range: [0, E)
  std::int64_t drop_pad_mode = 0;      ///< 0 and 1 column layout, 2 and 3 row layout
  TensorView out;                      ///< out. Shape: [N, H], the rows' dtype
};
void infer(MoeFinalizeRoutingArgs& args);
std::uint64_t workspace_bytes(const MoeFinalizeRoutingArgs& args, const Device& device);
OperatorCost cost(const MoeFinalizeRoutingArgs& args);
void moe_finalize_routing(StreamView stream, const MoeFinalizeRoutingArgs& args, const Call& how = {});

}  // namespace moecl::npu
