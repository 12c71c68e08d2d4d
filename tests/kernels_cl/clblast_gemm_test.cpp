#include <moecl/clblast_gemm.hpp>
#include <moecl/error.hpp>
#include <moecl/opencl.hpp>
#include <moecl/trace.hpp>

#include <gmock/gmock.h>

#include <cmath>

#include "tests/cases/grouped_gemm.hpp"
#include "tests/devices.hpp"

namespace moecl::test {
namespace {

class ClblastGemmTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(ClblastGemmTest);

/// A dense product is a grouped one in which every expert has the same number of rows.
GroupedGemmCase dense(std::int64_t b, std::int64_t m, std::int64_t n, std::int64_t k) {
  return {std::vector<std::int64_t>(static_cast<std::size_t>(b), m), n, k};
}

TEST_P(ClblastGemmTest, AgreesWithTheOracleOnDenseAndBatchedProducts) {
  // Both paths of CLBlast: a small product runs one kernel, a larger one is padded first.
  for (const auto& [b, m, n, k] :
       {std::tuple{1, 1, 1, 1}, {1, 7, 65, 33}, {1, 130, 257, 129}, {3, 5, 17, 65}, {2, 131, 129, 140}}) {
    const GroupedGemmCase shape = dense(b, m, n, k);
    const GroupedProduct product = make_product(shape, 1);
    const GuardedTensor a = upload(device(), DType::f32, {b, m, k}, product.a),
                        w = upload(device(), DType::f32, {b, n, k}, product.weights);
    const GuardedTensor out(device(), DType::f32, {b, m, n});
    clblast_gemm::Args args{a, w, out};
    if (b == 1)
      for (TensorView* view : {&args.a, &args.w, &args.out})
        *view = TensorView(view->buffer, DType::f32, {view->shape[1], view->shape[2]});
    clblast_gemm::enqueue(device().stream, args);
    EXPECT_LE(grouped_gemm_error(shape, product, out.values()), 1) << shape.describe();
  }
}

TEST_P(ClblastGemmTest, TakesStridedRows) {
  const GroupedGemmCase shape = dense(1, 4, 9, 6);
  const GroupedProduct product = make_product(shape, 2);
  std::vector<double> wide;  // rows of 6 in rows of 8
  for (std::size_t i = 0; i < 4; ++i) {
    wide.insert(wide.end(), product.a.begin() + 6 * i, product.a.begin() + 6 * i + 6);
    wide.insert(wide.end(), 2, std::nan(""));
  }
  const GuardedTensor a = upload(device(), DType::f32, {4, 8}, wide),
                      w = upload(device(), DType::f32, {9, 6}, product.weights);
  const GuardedTensor out(device(), DType::f32, {4, 9});
  TensorView rows = a;
  rows.shape[1] = 6;
  clblast_gemm::enqueue(device().stream, {rows, w, out});
  EXPECT_LE(grouped_gemm_error(shape, product, out.values()), 1);
}

TEST_P(ClblastGemmTest, WaitsForEventsAndReturnsOne) {
  const GuardedTensor a = upload(device(), DType::f32, {2, 2}, {1, 2, 3, 4}),
                      w = upload(device(), DType::f32, {1, 2}, {1, 1});
  const GuardedTensor out(device(), DType::f32, {2, 1});
  cl_int status = CL_SUCCESS;
  const Event gate(clCreateUserEvent(device().context->handle(), &status));
  ASSERT_EQ(status, CL_SUCCESS);
  _cl_event* const waits[] = {gate.handle()};
  for (const std::int64_t rows : {2, 0}) {
    const GuardedTensor& full = out;
    Event done;
    clblast_gemm::enqueue(device().stream, {a.view().rows(0, rows), w, full.view().rows(0, rows)},
                          {WaitList(waits, 1), &done});
    ASSERT_NE(done.handle(), nullptr);
    if (rows == 2) {
      EXPECT_FALSE(done.is_complete());
      clSetUserEventStatus(gate.handle(), CL_COMPLETE);
    }
    done.wait();
  }
  EXPECT_THAT(out.values(), testing::ElementsAre(3, 7));
}

TEST_P(ClblastGemmTest, IsSeenByTheTrace) {
  ContextOptions options;
  options.trace = true;
  const auto context = Context::create({device().context->devices().front()}, options);
  const Stream stream(*context);
  const DeviceTensor a(stream, DType::f32, {2, 2}, {1, 2, 3, 4}), w(stream, DType::f32, {1, 2}, {1, 1}),
      out(stream, DType::f32, {2, 1});
  context->trace()->clear();
  clblast_gemm::enqueue(stream, {a, w, out});
  const std::vector<WorkSummary> summary = context->trace()->summary();
  ASSERT_EQ(summary.size(), 1);
  EXPECT_EQ(summary[0].name, "clblast_gemm");
}

TEST_P(ClblastGemmTest, SaysWhyItRejects) {
  const GuardedTensor a(device(), DType::f32, {3, 4}), w(device(), DType::f32, {5, 4}),
      out(device(), DType::f32, {3, 5});
  const auto reason = [&](auto change) {
    clblast_gemm::Args args{a, w, out};
    change(args);
    const std::string text = clblast_gemm::reject(args, device().record());
    EXPECT_THROW(clblast_gemm::enqueue(device().stream, args), Error) << text;
    return text;
  };
  using Args = clblast_gemm::Args;
  using ::testing::HasSubstr;
  EXPECT_THAT(reason([](Args& args) { args.w.dtype = DType::bf16; }), HasSubstr("w: expected an f32 matrix"));
  EXPECT_THAT(reason([](Args& args) { args.a.rank = 3; }), HasSubstr("w: expected an f32 matrix, or a batch"));
  EXPECT_THAT(reason([](Args& args) { args.w.shape[1] = 3; }), HasSubstr("got f32[3, 5] = f32[3, 4] x f32[5, 3]"));
  EXPECT_THAT(reason([](Args& args) { args.out.stride[0] = 4; }), HasSubstr("overlap, 4 elements apart"));
}

}  // namespace
}  // namespace moecl::test
