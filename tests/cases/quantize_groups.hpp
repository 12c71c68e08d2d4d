#pragma once
#include <moecl/quantize_groups.hpp>

#include "tests/cases/operands.hpp"

namespace moecl::test {

/// Empty operands are absent.
struct QuantizeGroupsCase {
  std::int64_t width = 0;
  std::vector<double> x = {};        ///< [N, width]
  quantize_groups::Args rules = {};  ///< how it is quantized; without tensors
  DType dtype = DType::f32;
  DType q = DType::f32;
  DType scale = DType::f32;
  std::vector<std::int32_t> index = {};  ///< [R]
  ValidRows rows = {};                   ///< of R; empty: all are valid
  std::vector<double> of_experts = {};   ///< scales of the rule `given`, global scales of the rule `e4m3`

  std::int64_t sources() const { return static_cast<std::int64_t>(x.size()) / width; }
  std::int64_t out_rows() const { return index.empty() ? sources() : static_cast<std::int64_t>(index.size()); }
  std::int64_t group_columns() const { return rules.group == 0 ? width : rules.group; }
  std::int64_t groups() const { return (width + group_columns() - 1) / group_columns(); }
  /// Whether all rows share one scale, or all rows of an expert do.
  bool of_tensor() const;
  float tensor_scale() const;
  /// Whether `q` holds numbers; else it holds codes.
  bool gives_numbers() const { return is_activation_dtype(q); }
  std::string describe() const;

  using Args = quantize_groups::Args;
  struct Expected {
    std::vector<double> q, step;  ///< [R, width]: codes or numbers, and the scale of each
    std::vector<bool> infinite;   ///< the number that becomes the code is infinite
    std::vector<double> scale, zero;
  };
  Args bring(CaseTensors& tensors) const;
  Expected expected() const;
  void enqueue(StreamView stream, const Args& args, std::int32_t lanes) const;
  std::vector<Compared> compare(const CaseTensors& tensors, const Args& args, const Expected& expected) const;
};

}  // namespace moecl::test
