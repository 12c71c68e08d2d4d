#include <moecl/clblast_gemm.hpp>

#include <clblast.h>

#include "runtime/check.hpp"
#include "runtime/command.hpp"

namespace moecl::clblast_gemm {
namespace {

/// Sizes of the product; B is 1 for a dense one.
struct Sizes {
  std::int64_t b, m, n, k;
};

Sizes sizes(const Args& args) {
  const int rows = args.out.rank - 2, columns = args.out.rank - 1;
  return {args.out.rank == 3 ? args.out.shape[0] : 1, args.out.shape[rows], args.out.shape[columns],
          args.a.shape[columns]};
}

/// A matrix as CLBlast takes it.
struct Matrix {
  cl_mem buffer;
  std::size_t offset, row_stride, matrix_stride;

  explicit Matrix(const TensorView& view)
      : buffer(view.buffer.handle),
        offset(view.offset_elements()),
        row_stride(static_cast<std::size_t>(view.stride[view.rank - 2])),
        matrix_stride(view.rank == 3 ? static_cast<std::size_t>(view.stride[0]) : 0) {}
};

}  // namespace

std::string reject(const Args& args, const Device&) {
  for (const auto& [view, what] : {std::pair{&args.a, "a"}, {&args.w, "w"}, {&args.out, "out"}}) {
    if ((view->rank != 2 && view->rank != 3) || view->rank != args.a.rank || view->dtype != DType::f32)
      return fmt::format("{}: expected an f32 matrix, or a batch of them as the others, got {}", what,
                         view->describe());
    if (view->stride[view->rank - 2] < view->shape[view->rank - 1])
      return fmt::format("{}: rows of {} overlap, {} elements apart", what, view->describe(),
                         view->stride[view->rank - 2]);
  }
  const auto [b, m, n, k] = sizes(args);
  const int rows = args.out.rank - 2, columns = args.out.rank - 1;
  const bool same_batch = args.out.rank == 2 || (args.a.shape[0] == b && args.w.shape[0] == b);
  if (!same_batch || args.a.shape[rows] != m || args.w.shape[rows] != n || args.w.shape[columns] != k || n < 1 || k < 1)
    return fmt::format("expected [M, N] = [M, K] x [N, K], each or none with a batch, got {} = {} x {}",
                       args.out.describe(), args.a.describe(), args.w.describe());
  return {};
}

void enqueue(StreamView stream, const Args& args, Submit submit) {
  const std::string reason = reject(args, *stream.device);
  require(reason.empty(), "clblast_gemm: {}", reason);
  const Sizes size = sizes(args);
  if (size.b == 0 || size.m == 0) return enqueue_marker(stream, submit);
  // CLBlast takes no wait list. The queue is in-order, so a marker before CLBlast's kernels waits in their place.
  enqueue_marker(stream, {submit.wait, nullptr});
  const Matrix a(args.a), w(args.w), out(args.out);
  const OperatorCost work = cost(args);
  submit_command(
      stream, submit,
      {"clblast_gemm", size.b == 1 ? "gemm" : "gemm_strided_batched",
       fmt::format("{} x {}", args.a.describe(), args.w.describe()), work.bytes, work.flops},
      [&](cl_event* event) {
        using clblast::Layout, clblast::Transpose;
        cl_command_queue queue = stream.queue;
        const clblast::StatusCode status =
            args.out.rank == 2
                ? clblast::Gemm<float>(Layout::kRowMajor, Transpose::kNo, Transpose::kYes, size.m, size.n, size.k, 1.0F,
                                       a.buffer, a.offset, a.row_stride, w.buffer, w.offset, w.row_stride, 0.0F,
                                       out.buffer, out.offset, out.row_stride, &queue, event)
                : clblast::GemmStridedBatched<float>(
                      Layout::kRowMajor, Transpose::kNo, Transpose::kYes, size.m, size.n, size.k, 1.0F, a.buffer,
                      a.offset, a.row_stride, a.matrix_stride, w.buffer, w.offset, w.row_stride, w.matrix_stride, 0.0F,
                      out.buffer, out.offset, out.row_stride, out.matrix_stride, size.b, &queue, event);
        if (status == clblast::StatusCode::kOpenCLBuildProgramFailure)
          throw Error(ErrorCode::build_failed,
                      "clblast_gemm: CLBlast's kernels do not build on '" + stream.device->caps.name + "'",
                      static_cast<int>(status));
        if (status != clblast::StatusCode::kSuccess)
          fail_cl(static_cast<int>(status), "CLBlast's gemm of {} x {}", args.a.describe(), args.w.describe());
      });
}

OperatorCost cost(const Args& args) {
  const auto [b, m, n, k] = sizes(args);
  return {static_cast<std::uint64_t>(b * (m * k + n * k + m * n)) * sizeof(float),
          2 * static_cast<std::uint64_t>(b * m * n) * static_cast<std::uint64_t>(k)};
}

}  // namespace moecl::clblast_gemm
