#include "bench/dense_products.hpp"

#include <moecl/clblast_gemm.hpp>
#include <moecl/grouped_gemm.hpp>

#include <algorithm>
#include <cmath>

#include "bench/device.hpp"

namespace moecl::bench {
namespace {

using dense_backend::Backend;

std::vector<double> random(std::int64_t count, std::uint64_t seed) {
  return test::rounded(DType::f32, test::normal(static_cast<std::size_t>(count), seed));
}

std::vector<double> ends_of(const DenseShape& shape) {
  std::vector<double> ends;
  for (std::int64_t expert = 1; expert <= shape.b; ++expert) ends.push_back(static_cast<double>(expert * shape.m));
  return ends;
}

/// Views [b * rows, columns] as [b, rows, columns], the form in which CLBlast takes a batch.
TensorView batch(const TensorView& view, std::int64_t b) {
  return b == 1 ? view : TensorView(view.buffer, view.dtype, {b, view.shape[0] / b, view.shape[1]});
}

}  // namespace

DenseProduct::DenseProduct(const DenseShape& shape, Backend backend)
    : shape_(shape),
      backend_(backend),
      a_values_(random(shape.b * shape.m * shape.k, 1)),
      w_values_(random(shape.b * shape.n * shape.k, 2)),
      a_(stream(), DType::f32, {shape.b * shape.m, shape.k}, a_values_),
      out_(stream(), DType::f32, {shape.b * shape.m, shape.n}),
      w_(stream(), DType::f32, {shape.b * shape.n, shape.k}, w_values_),
      row_ends_(stream(), DType::i32, {shape.b}, ends_of(shape)),
      packed_(stream(), DType::f32, shape.b, shape.n, shape.k, w_values_) {}

void DenseProduct::enqueue() const {
  if (backend_ == Backend::clblast)
    return clblast_gemm::enqueue(stream(), {batch(a_, shape_.b), batch(w_, shape_.b), batch(out_, shape_.b)});
  grouped_gemm::Args args;
  args.a = a_, args.weights = packed_.weights, args.out = out_;
  if (shape_.b > 1) args.row_ends = row_ends_, args.rows_per_expert = shape_.m;
  grouped_gemm::enqueue(stream(), args);
}

OperatorCost DenseProduct::cost() const {
  return clblast_gemm::cost({batch(a_, shape_.b), batch(w_, shape_.b), batch(out_, shape_.b)});
}

double DenseProduct::error() const {
  enqueue();
  const std::vector<double> out = out_.values(stream());
  double worst = 0;
  for (std::size_t i = 0; i < out.size(); i += out.size() / 64 + 1) {
    const auto n = static_cast<std::size_t>(shape_.n), k = static_cast<std::size_t>(shape_.k);
    const std::size_t row = i / n, matrix = row / static_cast<std::size_t>(shape_.m);
    const double *a = a_values_.data() + row * k, *w = w_values_.data() + (matrix * n + i % n) * k;
    double sum = 0, magnitudes = 0;
    for (std::size_t j = 0; j < k; ++j) sum += a[j] * w[j], magnitudes += std::abs(a[j] * w[j]);
    worst = std::isfinite(out[i]) ? std::max(worst, std::abs(out[i] - sum) / magnitudes) : INFINITY;
  }
  return worst;
}

}  // namespace moecl::bench
