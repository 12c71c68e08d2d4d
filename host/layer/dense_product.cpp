#include "host/layer/dense_product.hpp"

#include <moecl/clblast_gemm.hpp>
#include <moecl/context.hpp>
#include <moecl/grouped_gemm.hpp>

#include "runtime/check.hpp"

namespace moecl {

DenseProduct::DenseProduct(StreamView stream, const MatrixStack& matrices, bool biased, DType dtype,
                           dense_backend::Backend backend)
    : dtype_(dtype) {
  std::int64_t rows = 0;
  bool quantized = false;
  for (const WeightMatrix& matrix : matrices) rows += matrix.rows(), quantized = quantized || matrix.quantized();
  const std::int64_t k = matrices.front().columns();
  if (quantized || backend != dense_backend::Backend::clblast) {
    packed_ = DeviceWeights(stream, WeightFormat::of({matrices}, dtype), 1, rows, k, biased);
    return;
  }
  memory_ = Buffer(*stream.context, static_cast<std::uint64_t>(rows * k) * size_bytes(dtype));
  row_major_ = TensorView(memory_.view(), dtype, {rows, k});
}

void DenseProduct::expect(const MatrixStack& matrices, const char* what) const {
  if (packed_.present()) return packed_.expect({matrices}, dtype_, what);
  for (const WeightMatrix& matrix : matrices)
    require(!matrix.quantized() && matrix.plain.column_stride == 1, "{}: stored row by row for CLBlast, got {}", what,
            matrix.quantized() ? "codes" : "a transposed matrix");
}

void DenseProduct::load(WeightUpload& upload, const MatrixStack& matrices, const std::vector<HostMatrix>& biases) {
  if (packed_.present()) {
    packed_.pack(upload, 0, matrices);
    if (!biases.empty()) packed_.pack_bias(upload, 0, biases);
    return;
  }
  std::int64_t first = 0;
  for (const WeightMatrix& matrix : matrices) {
    upload.copy(matrix.plain, row_major_.rows(first, matrix.rows()));
    first += matrix.rows();
  }
}

grouped_gemm::Args DenseProduct::product(const ProductRows& a, TensorView out, const SliceScratch& scratch) const {
  grouped_gemm::Args args;
  args.a = a.rows;
  args.a_scale = a.scale;
  args.a_group = a.group;
  packed_.multiply(args);
  args.out = out;
  args.scratch = scratch.memory;
  args.concurrent = scratch.concurrent;
  return args;
}

void DenseProduct::enqueue(StreamView stream, const ProductRows& a, TensorView out, const SliceScratch& scratch,
                           PlannedProduct& plan) const {
  if (row_major_.present()) return clblast_gemm::enqueue(stream, {a.rows, row_major_, out});
  enqueue_planned(stream, product(a, out, scratch), plan);
}

void DenseProduct::enqueue_activated(StreamView stream, const ProductRows& a, const AfterProduct& after,
                                     const SliceScratch& scratch, FirstPlans& plans) const {
  const TensorView& rows = after.activation.x;
  if (packed_.present()) {
    const auto only = [&](std::size_t) { return product(a, rows, scratch); };
    return moecl::enqueue_activated(stream, 1, only, after, plans);
  }
  clblast_gemm::enqueue(stream, {a.rows, row_major_, rows});
  moecl::enqueue(stream, after, plans);
}

}  // namespace moecl
