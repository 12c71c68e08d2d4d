#include "host/dense_product.hpp"

#include <moecl/clblast_gemm.hpp>
#include <moecl/context.hpp>
#include <moecl/grouped_gemm.hpp>

namespace moecl {

DenseProduct::DenseProduct(StreamView stream, WeightUpload& upload, const MatrixStack& matrices,
                           const std::vector<HostMatrix>& biases, DType dtype, dense_backend::Backend backend) {
  std::int64_t rows = 0;
  bool quantized = false;
  for (const WeightMatrix& matrix : matrices) rows += matrix.rows(), quantized = quantized || matrix.quantized();
  const std::int64_t k = matrices.front().columns();
  if (quantized || backend != dense_backend::Backend::clblast) {
    packed_ = DeviceWeights(stream, WeightFormat::of({matrices}, dtype), 1, rows, k, !biases.empty());
    packed_.pack(upload, 0, matrices);
    if (!biases.empty()) packed_.pack_bias(upload, 0, biases);
    return;
  }
  memory_ = Buffer(*stream.context, static_cast<std::uint64_t>(rows * k) * size_bytes(dtype));
  row_major_ = TensorView(memory_.view(), dtype, {rows, k});
  std::int64_t first = 0;
  for (const WeightMatrix& matrix : matrices) {
    upload.copy(matrix.plain, row_major_.rows(first, matrix.rows()));
    first += matrix.rows();
  }
}

void DenseProduct::enqueue(StreamView stream, const ProductRows& a, TensorView out) const {
  if (row_major_.present()) return clblast_gemm::enqueue(stream, {a.rows, row_major_, out});
  grouped_gemm::Args args;
  args.a = a.rows;
  args.a_scale = a.scale;
  args.a_group = a.group;
  packed_.multiply(args);
  args.out = out;
  grouped_gemm::enqueue(stream, args);
}

}  // namespace moecl
