#include "tests/oracle/npu_activation.hpp"

#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include "host/npu/describe_activation.hpp"
#include "tests/host/npu_property.hpp"

namespace moecl::test {
namespace {

class NpuActivationTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(NpuActivationTest);

/// Relative error of one rounding to the storage type; f32 results also carry the device's exp and divisions.
double rounding_of(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 * 1.01 : dtype == DType::f16 ? 0x1p-11 * 1.01 : 1e-6;
}

TEST_P(NpuActivationTest, SwigluAgreesWithTheOracle) {
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    const DType dtype = one_of<DType>(engine, {DType::f32, DType::f16, DType::bf16});
    const std::int64_t a = between(engine, 0, 5), b = between(engine, 1, 6), c = between(engine, 1, 40);
    const std::int64_t dim = between(engine, -3, 2), at = dim < 0 ? dim + 3 : dim;
    const std::int64_t shape[] = {at == 0 ? 2 * a : a, at == 1 ? 2 * b : b, at == 2 ? 2 * c : c};
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << name(dtype) << "[" << shape[0] << ", " << shape[1]
                                    << ", " << shape[2] << "], dim " << dim);
    const std::vector<double> x =
        rounded(dtype, normal(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]), engine()));
    const GuardedTensor device_x = upload(device(), dtype, {shape[0], shape[1], shape[2]}, x);
    npu::SwigluArgs args;
    args.x = device_x;
    args.dim = dim;
    std::int64_t outer = 1, inner = 1;
    for (int d = 0; d < 3; ++d) (d < at ? outer : inner) *= shape[d];
    expect_outputs(
        device(), args,
        {{oracle::swiglu(x, outer, inner / 2), {}, dtype == DType::f16 ? 0x1p-25 : 1e-30, rounding_of(dtype)}});
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuActivationTest, SwigluRefusesWhatCannotBeHalved) {
  const GuardedTensor odd(device(), DType::f32, {2, 3}), ints(device(), DType::i32, {2, 4});
  npu::SwigluArgs args;
  args.x = odd;
  EXPECT_THAT([&] { infer(args); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("dimension 1 of f32[2, 3] cannot be halved")));
  args.dim = 2;
  EXPECT_THAT([&] { infer(args); }, testing::ThrowsMessage<Error>(testing::HasSubstr("dim: 2 is not in [-2, 2)")));
  args.x = ints;
  EXPECT_THAT([&] { infer(args); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("expected f32, f16 or bf16, got i32[2, 4]")));
}

}  // namespace
}  // namespace moecl::test
