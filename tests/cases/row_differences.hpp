#pragma once
#include <moecl/row_differences.hpp>

#include <optional>

#include "tests/cases/operands.hpp"

namespace moecl::test {

struct RowDifferencesCase {
  std::int64_t width = 0;
  std::vector<double> x = {}, y = {};  ///< [N, width]
  DType of_x = DType::f32, of_y = DType::f32;

  std::int64_t rows() const { return static_cast<std::int64_t>(x.size()) / width; }
  std::string describe() const;
};

class RowDifferencesOperands : public CaseOperands {
 public:
  using Case = RowDifferencesCase;
  RowDifferencesOperands(StreamView stream, RowDifferencesCase of, Guards guards = Guards::none);

  row_differences::Args args;
  std::vector<Compared> run(std::int32_t lanes = 0);

 private:
  RowDifferencesCase case_;
  std::optional<std::vector<double>> expected_;
};

}  // namespace moecl::test
