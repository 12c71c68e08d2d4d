#pragma once
#include <moecl/npu_quant.hpp>

#include "host/npu/describe.hpp"

namespace moecl::npu {

inline constexpr std::array<const char*, 4> quant_types = {"int8", "quint4x2", "float8_e4m3fn", "float8_e5m2"};

/// The fields with which npu_dynamic_quant and npu_dynamic_quant_asymmetric begin.
template <class A, class V>
void visit_quant_inputs(A& a, V& visit) {
  visit.input("x", a.x, "[..., H] f16 or bf16, or beyond the operator f32");
  visit.input("smooth_scales", a.smooth_scales, "optional [H], with group_index [G, H]; a float type");
  visit.input("group_index", a.group_index, "optional [G] i32 or i64: cumulative row ends");
  visit.choice("dst_type", a.dst_type, "what codes are", quant_types);
}

template <>
struct Describe<DynamicQuantArgs> {
  static constexpr const char *name = "npu_dynamic_quant", *summary = "rows to int8, int4 or fp8, a scale for each",
                              *rounding = "divide: x / (amax / 127), of fp8 amax / 448 or 57344; halves to even";
  static constexpr std::array<Refusal, 0> refused = {};
  static constexpr auto run = &dynamic_quant;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit_quant_inputs(a, visit);
    visit.output("y", a.y, "[..., H] i8, of fp8 u8, or [..., H / 8] i32");
    visit.output("scale", a.scale, "x's shape without the last dimension, f32");
    visit.choice("rounding", a.rounding, "which template's rounding",
                 std::array{"divide", "divide_by_mulscale", "plain_template", "multirow_template"});
  }
};

template <>
struct Describe<DynamicQuantAsymmetricArgs> {
  static constexpr const char *name = "npu_dynamic_quant_asymmetric",
                              *summary = "rows to int8 or int4, a scale and an offset for each",
                              *rounding = "x / scale + offset in f32, halves to even";
  static constexpr std::array<Refusal, 1> refused = {
      {{"dst_type float8_e4m3fn, float8_e5m2", "offsets are of integers"}}};
  static constexpr auto run = &dynamic_quant_asymmetric;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit_quant_inputs(a, visit);
    visit.output("y", a.y, "[..., H] i8, or [..., H / 8] i32");
    visit.output("scale", a.scale, "x's shape without the last dimension, f32");
    visit.output("offset", a.offset, "as scale, f32");
  }
};

template <>
struct Describe<DynamicMxQuantArgs> {
  static constexpr const char *name = "npu_dynamic_mx_quant",
                              *summary = "blocks of 32 to fp8 or fp4, a power of two as the scale of each",
                              *rounding = "round_mode; codes saturate";
  static constexpr std::array<Refusal, 2> refused = {
      {{"block_size other than 32", "no kernel has other blocks"},
       {"x of more than three dimensions", "a tensor has at most four, and mxscale has one more than x"}}};
  static constexpr auto run = &dynamic_mx_quant;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit.input("x", a.x, "one to three dimensions; f16 or bf16, or beyond the operator f32");
    visit.parameter("axis", a.axis, "along which blocks run");
    visit.choice("round_mode", a.round_mode, "rint, for fp4 also floor and round (away from zero)", round_modes);
    visit.choice("dst_type", a.dst_type, "what codes are",
                 std::array{"float4_e2m1fn_x2", "float4_e1m2fn_x2", "float8_e4m3fn", "float8_e5m2"});
    visit.parameter("block_size", a.block_size, "elements that share a scale: 32");
    visit.parameter("scale_alg", a.scale_alg, "0: 2^(floor(log2(amax)) - emax), 1 (fp8): 2^ceil(log2(amax / largest))");
    visit.output("y", a.y, "x's shape, with half the last dimension for fp4; u8");
    visit.output("mxscale", a.mxscale, "x's shape with ceil(blocks / 2) at the axis, and 2; u8: e8m0");
  }
};

}  // namespace moecl::npu
