#pragma once
#include <moecl/pack_weights.hpp>

#include "tests/cases/operands.hpp"

namespace moecl::test {

/// One matrix of plain numbers.
struct PackWeightsCase {
  std::int64_t n = 0, k = 0;
  DType from = DType::f32, to = DType::f32;
  std::vector<double> matrix = {};  ///< [n, k]

  std::string describe() const;

  using Args = pack_weights::Args;
  using Expected = std::vector<double>;
  Args bring(CaseTensors& tensors) const;
  /// [ceil(n / 64), k, 64]
  Expected expected() const;
  /// `lanes`: the operator chooses them itself.
  void enqueue(StreamView stream, const Args& args, std::int32_t lanes) const;
  std::vector<Compared> compare(const CaseTensors& tensors, const Args& args, const Expected& expected) const;
};

}  // namespace moecl::test
