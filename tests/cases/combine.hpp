#pragma once
#include <moecl/combine.hpp>

#include "tests/cases/operands.hpp"
#include "tests/oracle/combine.hpp"

namespace moecl::test {

struct CombineCase {
  oracle::CombineInput in;  ///< not rounded
  DType rows = DType::f32;  ///< also of bias, shared and residual
  DType out = DType::f32, weights = DType::f32;

  std::int64_t tokens() const { return static_cast<std::int64_t>(in.slot_rows.size() / in.top_k); }
  std::string describe() const;

  using Args = combine::Args;
  using Expected = std::vector<double>;
  Args bring(CaseTensors& tensors) const;
  /// [T, H]
  Expected expected() const;
  void enqueue(StreamView stream, const Args& args, std::int32_t lanes) const;
  std::vector<Compared> compare(const CaseTensors& tensors, const Args& args, const Expected& expected) const;
};

}  // namespace moecl::test
