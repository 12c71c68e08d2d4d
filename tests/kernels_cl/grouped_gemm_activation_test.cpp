// Products whose sums go through an activation before they are stored.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/kernels_cl/grouped_gemm_operands.hpp"
#include "tests/oracle/gated_activation.hpp"

namespace moecl::test {
namespace {

class GroupedGemmActivationTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(GroupedGemmActivationTest);

/// Small integers, whose sums no type and no order rounds; scales are powers of two.
GroupedProduct exact_product(const GroupedGemmCase& shape) {
  GroupedProduct product = make_product(shape, 3);
  for (std::vector<double>* values : {&product.a, &product.weights})
    for (std::size_t i = 0; i < values->size(); ++i)
      (*values)[i] = static_cast<double>(i * 2654435761U / 65536 % 7) - 3;
  if (shape.a != DType::i8)
    for (double& value : product.a) value /= 8;
  product.a_scale.assign(product.a_scale.size(), 0.5);
  product.weight_scale.assign(product.weight_scale.size(), 0.25);
  return product;
}

std::vector<double> activated(const std::vector<double>& rows, std::size_t width, const Activation& activation) {
  std::vector<double> out;
  for (auto row = rows.begin(); row != rows.end(); row += static_cast<std::ptrdiff_t>(width)) {
    std::vector<double> x(row, row + static_cast<std::ptrdiff_t>(width));
    if (activation.gate_is_right) std::rotate(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(width / 2), x.end());
    Activation of_halves = activation;
    of_halves.gate_is_right = false;
    const std::vector<double> y = oracle::gated_activation(x, of_halves);
    out.insert(out.end(), y.begin(), y.end());
  }
  return out;
}

TEST_P(GroupedGemmActivationTest, IsThatOfTheSums) {
  Activation plain{ActivationFunction::relu2, false}, swapped{ActivationFunction::gelu};
  swapped.gate_is_right = true;
  int ran = 0;
  // Each kernel once, and each way to have the halves.
  for (const auto& [dtype, activation] : {std::pair{DType::f32, Activation{}},
                                          {DType::f32, swapped},
                                          {DType::bf16, Activation{ActivationFunction::swigluoai}},
                                          {DType::i8, plain}}) {
    const GroupedGemmCase shape{{3, 0, 8, 97}, 256, 70, dtype, dtype, DType::f32, 0, 0, 2};
    const GroupedProduct product = exact_product(shape);
    const std::vector<double> sums = grouped_gemm_oracle(product).values;
    const std::vector<double> expected = activated(sums, 256, activation);
    for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
      Operands operands(device(), shape, product);
      const GuardedTensor out(device(), DType::f32, {product.rows, activation.gated ? 128 : 256});
      operands.args.activation = activation, operands.args.out = out;
      const grouped_gemm::Config config{variant.name};
      if (!grouped_gemm::reject(operands.args, config, device().caps()).empty()) continue;
      EXPECT_TRUE(grouped_gemm::fuses_activation(operands.args, activation, config, device().caps()));
      grouped_gemm::enqueue(device().stream, operands.args, config);
      EXPECT_LE(relative_error(out.values(), expected), 2e-6)
          << variant.name << ", " << name(dtype) << ", " << name(activation.function);
      ++ran;
    }
  }
  const bool tiles = device().caps().type == DeviceType::cpu && device().caps().preferred_float_width >= 4;
  EXPECT_EQ(ran > 0, tiles);
}

TEST_P(GroupedGemmActivationTest, SaysWhyItRejects) {
  const GroupedGemmCase shape{{4, 3}, 256, 33};
  const Operands operands(device(), shape, make_product(shape, 1));
  const auto reason = [&](std::int64_t n, Activation activation, const char* variant) {
    grouped_gemm::Args args = operands.args;
    args.weights.n = n;
    args.activation = activation;
    args.out.shape[1] = activation.gated ? n / 2 : n;
    const std::string text = grouped_gemm::reject(args, {variant}, device().caps());
    EXPECT_FALSE(grouped_gemm::fuses_activation(args, activation, {variant}, device().caps())) << text;
    return text;
  };
  using testing::HasSubstr;
  EXPECT_THAT(reason(256, {}, "t0_local"), HasSubstr("variant t0_local: has no activation"));
  EXPECT_THAT(reason(256, {ActivationFunction::swigluoai, false}, "t0_tile"), HasSubstr("swigluoai is always gated"));
  if (device().caps().local_mem_bytes < (std::uint64_t{1} << 18)) return;  // the variants below do not run at all
  EXPECT_THAT(reason(192, {}, "t0_tile"),
              HasSubstr("expected gate and up of whole panels of 64 columns each, got N = 192"));
  EXPECT_THAT(reason(256, {ActivationFunction::silu, true, true}, "t0_tile"), HasSubstr("interleaved"));
}

}  // namespace
}  // namespace moecl::test
