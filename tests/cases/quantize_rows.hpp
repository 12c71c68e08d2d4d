#pragma once
#include <moecl/quantize_rows.hpp>

#include "tests/cases/operands.hpp"

namespace moecl::test {

/// Empty operands are absent.
struct QuantizeRowsCase {
  std::int64_t hidden = 0;
  std::vector<double> x = {};  ///< [N, hidden]
  quantize_rows::Rounding rounding = quantize_rows::Rounding::divide;
  quantize_rows::Scheme scheme = quantize_rows::Scheme::symmetric;
  DType dtype = DType::f32;
  bool int4 = false;
  std::vector<double> smooth = {};  ///< [1 or E, hidden]
  DType smooth_dtype = DType::f32;
  std::vector<std::int32_t> index = {};  ///< [R]
  std::int32_t divisor = 1;
  ValidRows rows = {};  ///< of R; empty: all are valid
  quantize_rows::Codes codes = quantize_rows::Codes::integer;
  std::int32_t group = 0;  ///< for float codes: 128; 0: a scale for the whole row
  bool power_of_two = false;
  float least_amax = 0;
  std::vector<float> given = {};  ///< of Scheme::given: its scale, or none

  std::int64_t sources() const { return static_cast<std::int64_t>(x.size()) / hidden; }
  std::int64_t out_rows() const { return index.empty() ? sources() : static_cast<std::int64_t>(index.size()); }
  bool is_static() const {
    return scheme == quantize_rows::Scheme::static_f16 || scheme == quantize_rows::Scheme::given;
  }
  /// Scales of a row. With groups of 128 there is one column more, which becomes 0.
  std::int64_t scale_columns() const { return group == 0 ? 1 : (hidden + 127) / 128 + 1; }
  std::string describe() const;

  using Args = quantize_rows::Args;
  struct Expected {
    std::vector<double> q, scale, offset;  ///< [R, hidden], [R, S], [R]; `untouched` where nothing is written
  };
  Args bring(CaseTensors& tensors) const;
  Expected expected() const;
  void enqueue(StreamView stream, const Args& args, std::int32_t lanes) const;
  std::vector<Compared> compare(const CaseTensors& tensors, const Args& args, const Expected& expected) const;

 private:
  void expect_row(Expected& out, const std::vector<double>& row) const;
};

}  // namespace moecl::test
