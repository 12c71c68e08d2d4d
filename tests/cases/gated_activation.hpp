#pragma once
#include <moecl/gated_activation.hpp>

#include "tests/cases/operands.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {

struct GatedActivationCase {
  std::int64_t width = 0;      ///< of the result
  std::vector<double> x = {};  ///< [R, 2 * width], or [R, width] of functions that are not gated
  Activation activation = {};
  DType from = DType::f32, to = DType::f32;  ///< to i8: with a scale for each row
  ValidRows rows = {};                       ///< of R; empty: all are valid
  double tolerance = 2e-6;                   ///< without the error of the storage type

  std::int64_t in_width() const { return activation.input_width(width); }
  std::int64_t row_count() const { return static_cast<std::int64_t>(x.size()) / in_width(); }
  std::string describe() const;

  using Args = gated_activation::Args;
  using Expected = std::vector<double>;
  Args bring(CaseTensors& tensors) const;
  /// [R, width], not rounded; `untouched` where nothing is written.
  Expected expected() const;
  void enqueue(StreamView stream, const Args& args, std::int32_t lanes) const;
  std::vector<Compared> compare(const CaseTensors& tensors, const Args& args, const Expected& expected) const;
};

}  // namespace moecl::test
