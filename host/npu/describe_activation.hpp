#pragma once
#include <moecl/npu_activation.hpp>

#include "host/npu/describe.hpp"

namespace moecl::npu {

template <>
struct Describe<SwigluArgs> {
  static constexpr const char *name = "npu_swiglu", *summary = "swish of one half of x times the other half",
                              *rounding = "f32 arithmetic, one rounding to x's dtype";
  static constexpr std::array<Refusal, 0> refused = {};
  static constexpr auto run = &swiglu;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("x", a.x, "[..., 2D, ...] f32, f16 or bf16");
    visit.parameter("dim", a.dim, "dimension that is halved; negative counts from the last");
    visit.output("y", a.y, "[..., D, ...], x's dtype");
  }
};

/// The input tensors of both forms.
template <class A, class V>
void visit_dequant_swiglu_inputs(A& a, V& visit) {
  visit.input("x", a.x, "[..., 2H] i32, f16, bf16 or f32");
  visit.input("weight_scale", a.weight_scale, "optional, required for i32: [2H] or [1, 2H], with groups [G, 2H]; f32");
  visit.input("activation_scale", a.activation_scale, "optional, for i32: one f32 for each row, [T] or [T, 1]");
  visit.input("bias", a.bias, "optional, for i32: [2H] or [1, 2H], i32 or a float type; ignored with group_index");
  visit.input("quant_scale", a.quant_scale, "optional, required for quant_mode 0: [H], [1, H], [1] or [G, H] f32");
  visit.input("quant_offset", a.quant_offset, "optional, for quant_mode 0: as quant_scale");
  visit.input("group_index", a.group_index, "optional [G] i32 or i64: counts of rows");
}
template <class A, class V>
void visit_dequant_swiglu_outputs(A& a, V& visit) {
  visit.output("y", a.y, "[..., H] i8");
  visit.output("scale", a.scale, "x's shape without the last dimension, f32; with quant_mode 1");
}

template <>
struct Describe<DequantSwigluQuantArgs> {
  static constexpr const char *name = "npu_dequant_swiglu_quant", *summary = "dequantize, SwiGLU, quantize",
                              *rounding =
                                  "dynamic: v / (amax * (1 / 127)); static: v / quant_scale + quant_offset; "
                                  "halves to even";
  static constexpr std::array<Refusal, 3> refused = {
      {{"dst_type float8_e4m3fn, float8_e5m2", "A5's; npu_dynamic_mx_quant makes fp8 codes"},
       {"round_mode other than rint", "int8 codes are rounded to nearest even by every caller known"},
       {"activate_dim other than the last", "rows are what experts have"}}};
  static constexpr auto run = &dequant_swiglu_quant;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit_dequant_swiglu_inputs(a, visit);
    visit.parameter("activate_left", a.activate_left, "swiglu_mode 0: the left half is activated, else the right one");
    visit.parameter("quant_mode", a.quant_mode, "0 static, 1 dynamic");
    visit.choice("dst_type", a.dst_type, "type of y", std::array{"int8", "float8_e4m3fn", "float8_e5m2"});
    visit.choice("round_mode", a.round_mode, "rounding of y", round_modes);
    visit.parameter("activate_dim", a.activate_dim, "dimension that is halved");
    visit.parameter("swiglu_mode", a.swiglu_mode, "0 plain, 1 clamped and interleaved, 2 clamped halves");
    visit.parameter("clamp_limit", a.clamp_limit, "swiglu_mode 1 and 2; above 0");
    visit.parameter("glu_alpha", a.glu_alpha, "swiglu_mode 1 and 2");
    visit.parameter("glu_bias", a.glu_bias, "swiglu_mode 1 and 2");
    visit_dequant_swiglu_outputs(a, visit);
  }
};

template <>
struct Describe<CAscendDequantSwigluQuantArgs> {
  static constexpr const char *name = "_C_ascend.npu_dequant_swiglu_quant",
                              *summary = "dequantize, SwiGLU, quantize, as vllm-ascend has it",
                              *rounding =
                                  "dynamic: v / (amax * (1 / 127)); static: v / quant_scale + quant_offset; "
                                  "halves to even";
  static constexpr std::array<Refusal, 0> refused = {};
  static constexpr auto run = &c_ascend_dequant_swiglu_quant;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit_dequant_swiglu_inputs(a, visit);
    visit.parameter("activate_left", a.activate_left, "the left half is activated, else the right one");
    visit.parameter("quant_mode", a.quant_mode, "0 static, 1 dynamic");
    visit.parameter("swiglu_mode", a.swiglu_mode, "0 plain, 1 clamped; both on halves");
    visit.parameter("clamp_limit", a.clamp_limit, "swiglu_mode 1; 0 or less: none");
    visit.parameter("glu_alpha", a.glu_alpha, "swiglu_mode 1");
    visit.parameter("glu_bias", a.glu_bias, "swiglu_mode 1");
    visit_dequant_swiglu_outputs(a, visit);
  }
};

}  // namespace moecl::npu
