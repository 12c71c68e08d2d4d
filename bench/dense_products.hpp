#pragma once
// Products that both our grouped GEMM and CLBlast can compute, for the benchmark and for `moecl tune`.
#include <moecl/dense_backend.hpp>
#include <moecl/operator_cost.hpp>

#include <vector>

#include "tests/cases/grouped_gemm.hpp"

namespace moecl::bench {

/// b products [m, n] = [m, k] x [n, k]; a dense product has b == 1.
struct DenseShape {
  std::int64_t b, m, n, k;
};

class DenseProduct {
 public:
  DenseProduct(const DenseShape& shape, dense_backend::Backend backend);
  void enqueue() const;
  OperatorCost cost() const;
  /// The largest error of a sample of elements against double precision, over the sum of magnitudes. Stops the host.
  double error() const;

 private:
  DenseShape shape_;
  dense_backend::Backend backend_;
  std::vector<double> a_values_, w_values_;
  test::DeviceTensor a_, out_, w_, row_ends_;
  test::PackedOnDevice packed_;
};

}  // namespace moecl::bench
