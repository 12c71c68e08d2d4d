#pragma once
#include <moecl/npu_routing.hpp>

#include "host/npu/describe.hpp"

namespace moecl::npu {

template <>
struct Describe<MoeInitRoutingArgs> {
  static constexpr const char *name = "npu_moe_init_routing", *summary = "rows in expert order, without expert counts",
                              *rounding = "none: rows are moved";
  static constexpr std::array<Refusal, 0> refused = {};
  static constexpr auto run = &moe_init_routing;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("x", a.x, "[N, H] f32, f16 or bf16");
    visit.input("row_idx", a.row_idx, "[N, K] i32, each of [0, N * K) once, column-major");
    visit.input("expert_idx", a.expert_idx, "[N, K] i32 of [0, 2^24)");
    visit.parameter("active_num", a.active_num, "tokens whose worth of rows is made: min(active_num, N) * K");
    visit.output("expanded_x", a.expanded_x, "[min(active_num, N) * K, H], x's dtype");
    visit.output("expanded_row_idx", a.expanded_row_idx, "[N * K] i32");
    visit.output("expanded_expert_idx", a.expanded_expert_idx, "[N * K] i32, ascending");
  }
};

template <>
struct Describe<MoeComputeExpertTokensArgs> {
  static constexpr const char *name = "npu_moe_compute_expert_tokens",
                              *summary = "cumulative rows of the experts from sorted ids", *rounding = "none: integers";
  static constexpr std::array<Refusal, 0> refused = {};
  static constexpr auto run = &moe_compute_expert_tokens;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("sorted_expert_for_source_row", a.sorted_expert_for_source_row, "[S] i32, ascending");
    visit.parameter("num_expert", a.num_expert, "experts");
    visit.output("total_rows_before_expert", a.total_rows_before_expert, "[num_expert] i32");
  }
};

template <>
struct Describe<MoeInitRoutingV2Args> {
  static constexpr const char *name = "npu_moe_init_routing_v2",
                              *summary = "rows of a range of experts in expert order, quantized on the way",
                              *rounding =
                                  "scale amax / largest, x / scale, halves to even, of HiF8 away; quant_mode 0: in "
                                  "f16; MX: 2^ceil(log2(amax / largest)), fp4 2^(floor(log2(amax)) - 2); 4, 5, 14, 15: "
                                  "the next power of two";
  static constexpr std::array<Refusal, 1> refused = {{
      {"quant_mode 10", "no document has it"},
  }};
  static constexpr auto run = &moe_init_routing_v2;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("x", a.x, "[N, H] f32, f16 or bf16, or i8 and u8: codes");
    visit.input("expert_idx", a.expert_idx, "[N, K] i32");
    visit.input(
        "scale", a.scale,
        "optional f32: [N], of codes also u8 [N, S] or [N, S / 2, 2] (quant_mode -1), [1] (0, 7), [range, H] or "
        "[1, H] (1, 13)");
    visit.input("offset", a.offset, "optional f32: [1] (quant_mode 0; 7 does not read it)");
    visit.parameter("active_num", a.active_num, "most rows that are made; below 1: N * K");
    visit.parameter("expert_capacity", a.expert_capacity, "rows of each expert with drop_pad_mode 1");
    visit.parameter("expert_num", a.expert_num, "experts");
    visit.parameter("drop_pad_mode", a.drop_pad_mode, "0 dropless, 1 drop and pad (range of all experts)");
    visit.parameter("expert_tokens_num_type", a.expert_tokens_num_type,
                    "0 cumulative, 1 counts, 2 (expert, count) pairs; always counts with drop_pad_mode 1");
    visit.parameter("expert_tokens_num_flag", a.expert_tokens_num_flag, "whether expert_tokens is written");
    visit.parameter(
        "quant_mode", a.quant_mode,
        "-1 none, 0 static int8, 1 int8, 13 int4; MX: 2, 16 e5m2, 3, 17 e4m3, 9 e2m1; by 128: 11 e5m2, 12 e4m3, by "
        "powers of two 4, 14 and 5, 15; HiF8: 6 x, 7 x * scale, 8 by row; 14 on: amax >= 1e-4");
    visit.parameter("active_expert_range", a.active_expert_range, "[first, end) of the experts; empty: all");
    visit.parameter("row_idx_type", a.row_idx_type, "0 row of each slot, 1 slot of each row (dropless only)");
    visit.choice("rounding", a.rounding, "how quant_mode 1 rounds halves",
                 std::array<const char*, 2>{"ties_even", "general_template"});
    visit.output("expanded_x", a.expanded_x,
                 "[rows, H] or [E, capacity, H], x's dtype, i8, or u8: other codes, of fp4 and int4 half of H");
    visit.output("expanded_row_idx", a.expanded_row_idx, "[N * K] i32");
    visit.output("expert_tokens", a.expert_tokens, "[range] or [expert_num, 2] i64");
    visit.output("expanded_scale", a.expanded_scale,
                 "[rows] f32; MX: [rows, 2 * ceil(H / 64)] u8, e8m0; by 128: [rows, ceil(H / 128)] f32, of 11 and 12 "
                 "[rows, ceil(H / 256), 2]");
  }
};

template <>
struct Describe<MoeTokenPermuteArgs> {
  static constexpr const char *name = "npu_moe_token_permute", *summary = "tokens sorted by index",
                              *rounding = "none: rows are moved";
  static constexpr std::array<Refusal, 1> refused = {
      {{"padded_mode true", "the device's operator does not support it either"}}};
  static constexpr auto run = &moe_token_permute;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("tokens", a.tokens, "[N, H] f32, f16, bf16, or i8 and u8: codes");
    visit.input("indices", a.indices, "[N] or [N, K], i32 or i64 of [0, 2^24)");
    visit.parameter("num_out_tokens", a.num_out_tokens, "rows kept; none or 0: all, negative: so many cut off");
    visit.parameter("padded_mode", a.padded_mode, "false");
    visit.output("permuted_tokens", a.permuted_tokens, "[rows, H], tokens' dtype");
    visit.output("sorted_indices", a.sorted_indices, "[N * K] i32: the row of each slot");
  }
};

template <>
struct Describe<MoeTokenUnpermuteArgs> {
  static constexpr const char *name = "npu_moe_token_unpermute",
                              *summary = "weighted sum of each token's rows, in token order",
                              *rounding = "f32, k ascending, multiply and add rounded one by one, then to the dtype";
  static constexpr std::array<Refusal, 0> refused = {};
  static constexpr auto run = &moe_token_unpermute;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("permuted_tokens", a.permuted_tokens, "[R, H] f32, f16 or bf16");
    visit.input("sorted_indices", a.sorted_indices, "[N * K] i32; padded: [R], the token of each row");
    visit.input("probs", a.probs, "optional [N, K] f32, f16 or bf16; padded: R elements");
    visit.parameter("padded_mode", a.padded_mode, "rows are added to the tokens that sorted_indices names");
    visit.parameter("restore_shape", a.restore_shape, "[N, H] of padded_mode");
    visit.output("unpermuted_tokens", a.unpermuted_tokens, "[N, H], permuted_tokens' dtype");
  }
};

template <>
struct Describe<MoeReRoutingArgs> {
  static constexpr const char *name = "npu_moe_re_routing",
                              *summary = "rows by rank, then expert, put by expert, then rank",
                              *rounding = "none: rows are moved";
  static constexpr std::array<Refusal, 1> refused = {
      {{"expert_token_num_type 0, idx_type 1", "the device's operator has only 1 and 0"}}};
  static constexpr auto run = &moe_re_routing;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("tokens", a.tokens, "[A, H] f32, f16, bf16, or i8 and u8: codes");
    visit.input("expert_token_num_per_rank", a.expert_token_num_per_rank, "[R, E] i32 or i64, sum A");
    visit.input("per_token_scales", a.per_token_scales, "optional [A] f32");
    visit.parameter("expert_token_num_type", a.expert_token_num_type, "1: counts");
    visit.parameter("idx_type", a.idx_type, "0: input row of each output row");
    visit.output("permute_tokens", a.permute_tokens, "[A, H], tokens' dtype");
    visit.output("permute_per_token_scales", a.permute_per_token_scales, "[A] f32");
    visit.output("permute_token_idx", a.permute_token_idx, "[A] i32");
    visit.output("expert_token_num", a.expert_token_num, "[E], dtype of expert_token_num_per_rank");
  }
};

template <>
struct Describe<MoeFinalizeRoutingArgs> {
  static constexpr const char *name = "npu_moe_finalize_routing",
                              *summary = "weighted sum of each token's rows with expert biases and two skips",
                              *rounding = "f32: row + bias, times scale, summed by k, + skip1, + skip2, then to dtype";
  static constexpr std::array<Refusal, 0> refused = {};
  static constexpr auto run = &moe_finalize_routing;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("expanded_permuted_rows", a.expanded_permuted_rows, "[R, H] or [E, C, H], f32, f16 or bf16");
    visit.input("skip1", a.skip1, "optional [N, H], the rows' dtype");
    visit.input("skip2", a.skip2, "optional [N, H], needs skip1");
    visit.input("bias", a.bias, "optional [E, H], the rows' dtype");
    visit.input("scales", a.scales, "optional [N, K] f32, f16 or bf16; absent: 1, K = 1");
    visit.input("expanded_src_to_dst_row", a.expanded_src_to_dst_row, "[N * K] i32; modes 1 and 3: -1 is dropped");
    visit.input("export_for_source_row", a.export_for_source_row, "optional [N, K] i32: experts, needed by bias");
    visit.parameter("drop_pad_mode", a.drop_pad_mode, "0, 1 column layout, 2, 3 row layout; 1, 3 drop and pad");
    visit.output("out", a.out, "[N, H], the rows' dtype");
  }
};

}  // namespace moecl::npu
