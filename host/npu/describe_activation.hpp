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

}  // namespace moecl::npu
