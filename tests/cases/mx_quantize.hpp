#pragma once
#include <moecl/mx_quantize.hpp>

#include <optional>

#include "tests/cases/operands.hpp"

namespace moecl::test {

struct MxQuantizeCase {
  mx_quantize::Args rules = {};  ///< without tensors
  DType dtype = DType::f32;
  std::int64_t length = 0, inner = 1;
  std::vector<double> x = {};            ///< [N, length, inner]
  std::vector<std::int32_t> index = {};  ///< [R], or empty
  ValidRows rows = {};                   ///< of R; without any all are valid

  std::int64_t sources() const { return static_cast<std::int64_t>(x.size()) / (length * inner); }
  std::string describe() const;
};

class MxQuantizeOperands : public CaseOperands {
 public:
  using Case = MxQuantizeCase;
  MxQuantizeOperands(StreamView stream, MxQuantizeCase of, Guards guards = Guards::none);

  mx_quantize::Args args;
  std::vector<Compared> run(std::int32_t lanes = 0);

 private:
  MxQuantizeCase case_;
  struct Bytes {
    std::vector<double> y, scale;
  };
  std::optional<Bytes> expected_;

  std::size_t out_rows() const;
  Bytes expected() const;
};

}  // namespace moecl::test
