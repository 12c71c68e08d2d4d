#pragma once
#include <moecl/gather_rows.hpp>

#include <optional>

#include "tests/cases/operands.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {

struct GatherRowsCase {
  std::int64_t hidden = 0;
  DType from = DType::f32, to = DType::f32;
  std::vector<double> x = {};            ///< [N, hidden]
  std::vector<std::int32_t> index = {};  ///< [R]
  std::int32_t divisor = 1;
  ValidRows rows = {};  ///< of R; without any all are valid

  std::int64_t sources() const { return static_cast<std::int64_t>(x.size()) / hidden; }
  std::int64_t out_rows() const { return static_cast<std::int64_t>(index.size()); }
  std::string describe() const;
  /// [R, hidden]; `untouched` where nothing is written.
  std::vector<double> expected() const;
};

class GatherRowsOperands : public CaseOperands {
 public:
  using Case = GatherRowsCase;
  GatherRowsOperands(StreamView stream, GatherRowsCase of, Guards guards = Guards::none);

  gather_rows::Args args;
  std::vector<Compared> run(std::int32_t lanes = 0);

 private:
  GatherRowsCase case_;
  std::optional<std::vector<double>> expected_;
};

}  // namespace moecl::test
