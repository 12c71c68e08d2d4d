#pragma once
#include <moecl/mx_quantize.hpp>

#include "tests/cases/operands.hpp"

namespace moecl::test {

struct MxQuantizeCase {
  mx_quantize::Args rules = {};  ///< without tensors
  DType dtype = DType::f32;
  std::int64_t length = 0, inner = 1;
  std::vector<double> x = {};            ///< [N, length, inner]
  std::vector<std::int32_t> index = {};  ///< [R], or empty
  ValidRows rows = {};                   ///< of R; empty: all are valid

  std::int64_t sources() const { return static_cast<std::int64_t>(x.size()) / (length * inner); }
  std::int64_t out_rows() const { return index.empty() ? sources() : static_cast<std::int64_t>(index.size()); }
  std::string describe() const;

  using Args = mx_quantize::Args;
  struct Expected {
    std::vector<double> y, scale;  ///< bytes; `untouched` where nothing is written
  };
  Args bring(CaseTensors& tensors) const;
  Expected expected() const;
  void enqueue(StreamView stream, const Args& args, std::int32_t lanes) const;
  std::vector<Compared> compare(const CaseTensors& tensors, const Args& args, const Expected& expected) const;
};

}  // namespace moecl::test
