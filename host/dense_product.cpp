#include "host/dense_product.hpp"

#include <moecl/clblast_gemm.hpp>
#include <moecl/context.hpp>
#include <moecl/grouped_gemm.hpp>

namespace moecl {

DenseProduct::DenseProduct(StreamView stream, WeightUpload& upload, const std::vector<HostMatrix>& matrices,
                           DType dtype, dense_backend::Backend backend) {
  std::int64_t rows = 0;
  for (const HostMatrix& matrix : matrices) rows += matrix.rows;
  const std::int64_t k = matrices.front().columns;
  if (backend == dense_backend::Backend::clblast) {
    memory_ = Buffer(*stream.context, static_cast<std::uint64_t>(rows * k) * size_bytes(dtype));
    row_major_ = TensorView(memory_.view(), dtype, {rows, k});
  } else {
    memory_ = Buffer(*stream.context, PackedWeights::size_bytes(dtype, 1, rows, k));
    packed_ = {memory_.view(), dtype, 1, rows, k};
  }
  std::int64_t first = 0;
  for (const HostMatrix& matrix : matrices) {
    if (packed_.present())
      upload.pack(matrix, packed_, 0, first);
    else
      upload.copy(matrix, row_major_.rows(first, matrix.rows));
    first += matrix.rows;
  }
}

void DenseProduct::enqueue(StreamView stream, TensorView a, TensorView out) const {
  if (row_major_.present()) return clblast_gemm::enqueue(stream, {a, row_major_, out});
  grouped_gemm::Args args;
  args.a = a;
  args.weights = packed_;
  args.out = out;
  grouped_gemm::enqueue(stream, args);
}

}  // namespace moecl
