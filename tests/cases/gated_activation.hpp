#pragma once
#include <moecl/gated_activation.hpp>

#include <optional>

#include "tests/cases/operands.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {

struct GatedActivationCase {
  std::int64_t width = 0;      ///< of the result
  std::vector<double> x = {};  ///< [R, 2 * width], or [R, width] of functions that are not gated
  Activation activation = {};
  DType from = DType::f32, to = DType::f32;  ///< to i8: with a scale for each row
  ValidRows rows = {};                       ///< of R; without any all are valid
  double tolerance = 2e-6;                   ///< before the storage type's

  std::int64_t in_width() const { return activation.input_width(width); }
  std::int64_t row_count() const { return static_cast<std::int64_t>(x.size()) / in_width(); }
  std::string describe() const;
  /// [R, width], not rounded; `untouched` where nothing is written.
  std::vector<double> expected() const;
};

class GatedActivationOperands : public CaseOperands {
 public:
  using Case = GatedActivationCase;
  GatedActivationOperands(StreamView stream, GatedActivationCase of, Guards guards = Guards::none);

  gated_activation::Args args;
  std::vector<Compared> run(std::int32_t lanes = 0);

 private:
  GatedActivationCase case_;
  std::optional<std::vector<double>> expected_;

  std::vector<Compared> compare_codes() const;
};

}  // namespace moecl::test
