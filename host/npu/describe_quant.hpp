#pragma once
#include <moecl/npu_quant.hpp>

#include "host/npu/describe.hpp"

namespace moecl::npu {

inline constexpr std::array<const char*, 4> quant_types = {"int8", "quint4x2", "float8_e4m3fn", "float8_e5m2"};
inline constexpr std::array<Refusal, 1> quant_refused = {
    {{"dst_type float8_e4m3fn, float8_e5m2", "fp8 comes with the quantization formats"}}};

/// The fields that both operators begin with.
template <class A, class V>
void visit_quant_inputs(A& a, V& visit) {
  visit.input("x", a.x, "[..., H] f16 or bf16, or beyond the operator f32");
  visit.input("smooth_scales", a.smooth_scales, "optional [H], with group_index [G, H]; a float type");
  visit.input("group_index", a.group_index, "optional [G] i32 or i64: cumulative row ends");
  visit.choice("dst_type", a.dst_type, "what codes are", quant_types);
}

template <>
struct Describe<DynamicQuantArgs> {
  static constexpr const char *name = "npu_dynamic_quant", *summary = "rows to int8 or int4, a scale for each",
                              *rounding = "divide: x / (amax / 127), halves to even";
  static constexpr auto refused = quant_refused;
  static constexpr auto run = &dynamic_quant;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit_quant_inputs(a, visit);
    visit.output("y", a.y, "[..., H] i8, or [..., H / 8] i32");
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
  static constexpr auto refused = quant_refused;
  static constexpr auto run = &dynamic_quant_asymmetric;
  template <class A, class V>
  static void fields(A& a, V& visit) {
    visit_quant_inputs(a, visit);
    visit.output("y", a.y, "[..., H] i8, or [..., H / 8] i32");
    visit.output("scale", a.scale, "x's shape without the last dimension, f32");
    visit.output("offset", a.offset, "as scale, f32");
  }
};

}  // namespace moecl::npu
