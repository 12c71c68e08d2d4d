#pragma once
#include <moecl/gather_rows.hpp>

#include "tests/cases/operands.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {

struct GatherRowsCase {
  std::int64_t hidden = 0;
  DType from = DType::f32, to = DType::f32;
  std::vector<double> x = {};            ///< [N, hidden]
  std::vector<std::int32_t> index = {};  ///< [R]
  std::int32_t divisor = 1;
  ValidRows rows = {};  ///< of R; empty: all are valid

  std::int64_t sources() const { return static_cast<std::int64_t>(x.size()) / hidden; }
  std::int64_t out_rows() const { return static_cast<std::int64_t>(index.size()); }
  std::string describe() const;

  using Args = gather_rows::Args;
  using Expected = std::vector<double>;
  Args bring(CaseTensors& tensors) const;
  /// [R, hidden]; `untouched` where nothing is written.
  Expected expected() const;
  void enqueue(StreamView stream, const Args& args, std::int32_t lanes) const;
  std::vector<Compared> compare(const CaseTensors& tensors, const Args& args, const Expected& expected) const;
};

}  // namespace moecl::test
