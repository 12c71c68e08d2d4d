#pragma once
#include <moecl/row_differences.hpp>

#include "tests/cases/operands.hpp"

namespace moecl::test {

struct RowDifferencesCase {
  std::int64_t width = 0;
  std::vector<double> x = {}, y = {};  ///< [N, width]
  DType of_x = DType::f32, of_y = DType::f32;

  std::int64_t rows() const { return static_cast<std::int64_t>(x.size()) / width; }
  std::string describe() const;

  using Args = row_differences::Args;
  using Expected = std::vector<double>;
  Args bring(CaseTensors& tensors) const;
  Expected expected() const;
  void enqueue(StreamView stream, const Args& args, std::int32_t lanes) const;
  std::vector<Compared> compare(const CaseTensors& tensors, const Args& args, const Expected& expected) const;
};

}  // namespace moecl::test
