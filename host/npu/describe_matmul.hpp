#pragma once
#include <moecl/npu_matmul.hpp>

#include "host/npu/describe.hpp"

namespace moecl::npu {

inline constexpr const char* weight_text = "[E, K, N] i8, or int4 in i32: [E, K, N / 8] or [E, K / 8, N]";
inline constexpr const char* weight_scale_text = "[E, N], [E, 1, N] or [E, G, N]; f32, f16, bf16 or 64-bit";
inline constexpr const char* assist_text = "optional assist matrix of int4 weights, [E, N] f32, f16 or bf16";
inline constexpr Refusal refused_types = {"fp8, fp4 and MX types", "A5's; npu_grouped_matmul takes MX codes"};
inline constexpr std::array<const char*, 5> code_types = {"none", "e4m3", "e5m2", "e2m1", "float8_e8m0fnu"};
inline constexpr std::array<const char*, 2> swiglu_quant_roundings = {"reciprocal", "double_rounding"};
inline constexpr const char* swiglu_quant_rounding =
    "f32 arithmetic; x * (127 / amax), halves to even, scale 1 / (127 / amax)";

template <>
struct Describe<QuantMatmulArgs> {
  static constexpr const char *name = "npu_quant_matmul", *summary = "i8 x i8 or int4, dequantized or requantized",
                              *rounding = "sums exact in int32, scales in f32, one rounding to the output's type";
  static constexpr std::array<Refusal, 3> refused = {{
      refused_types,
      {"x1 of int4 in i32", "no scheme quantizes activations to int4"},
      {"batches of x2", "an MoE layer has none; experts are groups of grouped_matmul"},
  }};
  static constexpr auto run = &quant_matmul;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("x1", a.x1, "[..., M, K] i8");
    visit.input("x2", a.x2, "[K, N] i8, or int4 in i32");
    visit.input("scale", a.scale, "[1] or [N]; f32, f16, bf16 or 64-bit; not used by an i32 output");
    visit.input("offset", a.offset, "optional [1] or [N] f32, of an i8 output");
    visit.input("pertoken_scale", a.pertoken_scale, "optional [M] f32");
    visit.input("bias", a.bias, "optional [N]: i32 added to the sums, f32, f16 or bf16 added after the scales");
    visit.parameter("output_dtype", a.output_dtype, "i8 if none, f16, bf16, f32, or i32: the bare sums");
    visit.output("y", a.y, "[..., M, N]");
  }
};

template <>
struct Describe<GroupedMatmulArgs> {
  static constexpr const char *name = "npu_grouped_matmul", *summary = "for each group its rows times its weights",
                              *rounding =
                                  "f32 sums (i8: exact in int32), one rounding to the output's type; integer weights "
                                  "beside float x are rounded to x's dtype first; MX operands become f32";
  static constexpr std::array<Refusal, 5> refused = {{
      {"fp8 codes with other scales than MX blocks of 32, and fp8 or fp4 weights beside float x",
       "no layer asks for them"},
      {"lists, pairs and groups of K of MX operands", "no layer asks for them"},
      {"split_item 0 and 1 with one x and group_type 0", "only the device knows the lengths of the outputs"},
      {"activation_input, activation_quant_scale, activation_quant_offset, tuning_config",
       "the device reserves or ignores them"},
      {"x of int4 in i32", "as in npu_quant_matmul"},
  }};
  static constexpr auto run = &grouped_matmul;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("x", a.x, "[M, K] f32, f16, bf16, i8 or u8: codes, e2m1 two to a byte along K; or a list");
    visit.input("weight", a.weight,
                "[E, K, N] or a list of [K, N]; x's dtype, i8, int4 in i32, or u8: codes, e2m1 two to a byte along N");
    visit.input("bias", a.bias, "optional [E, N] or a list of [N]; f32, f16, bf16, or i32 beside integer weights");
    visit.input("scale", a.scale,
                "optional [E, N], [E, 1, N], [E, G, N] or a list; of integer x. Of codes u8 [E, ceil(K / 64), N, 2]");
    visit.input("offset", a.offset, "optional [E, N] f32 or a list; of an i8 output");
    visit.input("antiquant_scale", a.antiquant_scale, "optional [E, N], [E, G, N] or a list; of float x");
    visit.input("antiquant_offset", a.antiquant_offset, "optional, as antiquant_scale");
    visit.input("per_token_scale", a.per_token_scale,
                "optional [M] f32, one for each x. Of codes u8 [M, ceil(K / 64), 2]");
    visit.input("group_list", a.group_list, "optional i64 or i32 [E] or [n, 2]; needed for the groups of one x");
    visit.parameter("split_item", a.split_item, "0, 1: a y for each group; 2, 3: one y");
    visit.parameter("group_type", a.group_type, "-1 x and weight pair up, 0 groups of rows, 2 groups of K");
    visit.parameter("group_list_type", a.group_list_type, "0 cumulative, 1 counts, 2 (group, count) pairs");
    visit.parameter("act_type", a.act_type, "0 none, 1 relu, 2 gelu_tanh, 4 fast_gelu, 5 silu");
    visit.parameter("output_dtype", a.output_dtype, "x's if none; of i8 x also f16, bf16, f32 and i32");
    visit.choice("x_dtype", a.x_dtype, "what codes of x mean", code_types);
    visit.choice("weight_dtype", a.weight_dtype, "what codes of weight mean", code_types);
    visit.choice("scale_dtype", a.scale_dtype, "what codes of scale mean", code_types);
    visit.choice("per_token_scale_dtype", a.per_token_scale_dtype, "what codes of per_token_scale mean", code_types);
    visit.output("y", a.y, "[M, N] each; [E, M, N] with group_type 2");
  }
};

template <>
struct Describe<GroupedMatmulSwigluQuantArgs> {
  static constexpr const char *name = "npu_grouped_matmul_swiglu_quant",
                              *summary = "grouped product, swish of its gate times up, int8 rows",
                              *rounding = swiglu_quant_rounding;
  static constexpr std::array<Refusal, 2> refused = {{
      refused_types,
      {"offset, output_offset", "the device has no asymmetric quantization here; it leaves them unused"},
  }};
  static constexpr auto run = &grouped_matmul_swiglu_quant;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("x", a.x, "[M, K] i8");
    visit.input("weight", a.weight, weight_text);
    visit.input("group_list", a.group_list, "[E] i64 or i32, cumulative");
    visit.input("weight_scale", a.weight_scale, weight_scale_text);
    visit.input("x_scale", a.x_scale, "[M] f32");
    visit.input("bias", a.bias, assist_text);
    visit.choice("rounding", a.rounding, "how rows are quantized", swiglu_quant_roundings);
    visit.output("output", a.output, "[M, N / 2] i8");
    visit.output("output_scale", a.output_scale, "[M] f32");
  }
};

template <>
struct Describe<GroupedMatmulSwigluQuantV2Args> {
  static constexpr const char *name = "npu_grouped_matmul_swiglu_quant_v2",
                              *summary = "the same with lists of weights, counts and a smooth scale",
                              *rounding = swiglu_quant_rounding;
  static constexpr std::array<Refusal, 2> refused = {{
      {"dequant_mode 2, quant_mode 2", "MX types are A5's; npu_grouped_matmul takes them"},
      {"dequant_dtype, quant_dtype, tuning_config", "f32 and i8 are the only ones; the device ignores the last"},
  }};
  static constexpr auto run = &grouped_matmul_swiglu_quant_v2;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("x", a.x, "[M, K] i8");
    visit.input("weight", a.weight, "[E, K, N] i8 or int4 in i32, or a list of [K, N]");
    visit.input("weight_scale", a.weight_scale, "[E, N], [E, 1, N] or [E, G, N], or a list");
    visit.input("x_scale", a.x_scale, "[M] f32");
    visit.input("group_list", a.group_list, "[E] i64 or i32");
    visit.input("smooth_scale", a.smooth_scale, "optional [E, N / 2] f32");
    visit.input("weight_assist_matrix", a.weight_assist_matrix, assist_text);
    visit.input("bias", a.bias, "optional [E, N] i32, of i8 weights");
    visit.parameter("dequant_mode", a.dequant_mode, "0 a scale for each channel, 1 for each group of K");
    visit.parameter("quant_mode", a.quant_mode, "0: a scale for each row");
    visit.parameter("group_list_type", a.group_list_type, "0 cumulative, 1 counts");
    visit.choice("rounding", a.rounding, "how rows are quantized", swiglu_quant_roundings);
    visit.output("output", a.output, "[M, N / 2] i8");
    visit.output("output_scale", a.output_scale, "[M] f32");
  }
};

template <>
struct Describe<CAscendGroupedMatmulSwigluQuantArgs> {
  static constexpr const char *name = "_C_ascend.grouped_matmul_swiglu_quant",
                              *summary = "vllm-ascend's form: the activation may be clamped",
                              *rounding = swiglu_quant_rounding;
  static constexpr std::array<Refusal, 1> refused = {{refused_types}};
  static constexpr auto run = &c_ascend_grouped_matmul_swiglu_quant;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("x", a.x, "[M, K] i8");
    visit.input("weight", a.weight, weight_text);
    visit.input("bias", a.bias, assist_text);
    visit.input("group_list", a.group_list, "[E] i64 or i32, cumulative");
    visit.input("weight_scale", a.weight_scale, weight_scale_text);
    visit.input("x_scale", a.x_scale, "[M] f32");
    visit.parameter("swiglu_limit", a.swiglu_limit, "above 0: gate at most this, up within plus and minus this");
    visit.choice("rounding", a.rounding, "how rows are quantized", swiglu_quant_roundings);
    visit.output("output", a.output, "[M, N / 2] i8");
    visit.output("output_scale", a.output_scale, "[M] f32");
  }
};

template <>
struct Describe<GroupedMatmulFinalizeRoutingArgs> {
  static constexpr const char *name = "npu_grouped_matmul_finalize_routing",
                              *summary = "grouped product whose rows are added to their tokens",
                              *rounding =
                                  "f32: rows of a token by ascending index, multiply and add rounded one by one";
  static constexpr std::array<Refusal, 2> refused = {{
      refused_types,
      {"offset, tuning_config", "of asymmetric int4 weights, which no model here has; the device ignores the last"},
  }};
  static constexpr auto run = &grouped_matmul_finalize_routing;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("x", a.x, "[M, K] i8");
    visit.input("weight", a.weight, weight_text);
    visit.input("group_list", a.group_list, "[E] i64 or i32");
    visit.input("scale", a.scale, weight_scale_text);
    visit.input("bias", a.bias, "optional [E, N]; of int4 weights the assist matrix");
    visit.input("pertoken_scale", a.pertoken_scale, "optional [M] f32");
    visit.input("shared_input", a.shared_input, "optional [n, N] f32, f16 or bf16");
    visit.input("logit", a.logit, "optional [M] f32, f16 or bf16; 1 without");
    visit.input("row_index", a.row_index, "[M] i64 or i32 of [0, output_bs)");
    visit.parameter("dtype", a.dtype, "f32 if none, f16 or bf16");
    visit.parameter("shared_input_weight", a.shared_input_weight, "multiplies shared_input");
    visit.parameter("shared_input_offset", a.shared_input_offset, "row of y that shared_input starts at");
    visit.parameter("output_bs", a.output_bs, "rows of y; 0: M");
    visit.parameter("group_list_type", a.group_list_type, "0 cumulative, 1 counts");
    visit.output("y", a.y, "[output_bs, N], all of it");
  }
};

}  // namespace moecl::npu
