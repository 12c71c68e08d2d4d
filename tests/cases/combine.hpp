#pragma once
#include <moecl/combine.hpp>

#include <optional>

#include "tests/cases/operands.hpp"
#include "tests/oracle/combine.hpp"

namespace moecl::test {

struct CombineCase {
  oracle::CombineInput in;  ///< not rounded
  DType rows = DType::f32;  ///< and of bias, shared and residual
  DType out = DType::f32, weights = DType::f32;

  std::int64_t tokens() const { return static_cast<std::int64_t>(in.slot_rows.size() / in.top_k); }
  std::string describe() const;
  /// [T, H]
  std::vector<double> expected() const;
};

class CombineOperands : public CaseOperands {
 public:
  using Case = CombineCase;
  CombineOperands(StreamView stream, CombineCase of, Guards guards = Guards::none);

  combine::Args args;
  std::vector<Compared> run(std::int32_t lanes = 0);

 private:
  CombineCase case_;
  std::optional<std::vector<double>> expected_;
};

}  // namespace moecl::test
