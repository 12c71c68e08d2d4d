// Products whose sums go through an activation before they are stored.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/cases/quantized_matrices.hpp"
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

/// What the storage of `out` and the activation's own functions may add, relative to the largest element.
double tolerance(DType out) { return out == DType::f32 ? 2e-6 : out == DType::bf16 ? 0x1p-8 : 0x1p-11; }

bool has_tensor_cores(const DeviceCaps& caps) { return caps.nv_compute_capability >= 80; }
bool fuses(const DeviceCaps& caps) {
  return has_tensor_cores(caps) || (caps.type == DeviceType::cpu && caps.preferred_float_width >= 4);
}

/// Runs every variant that applies the activation here. @return  how many
int check_variants(const TestDevice& device, Operands& operands, const GroupedProduct& product,
                   const Activation& activation, DType out_dtype, double allowed) {
  const std::vector<double> sums = grouped_gemm_oracle(product).values;
  const std::vector<double> expected = activated(sums, static_cast<std::size_t>(product.n), activation);
  int ran = 0;
  for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
    const GuardedTensor out(device, out_dtype, {product.rows, activation.gated ? product.n / 2 : product.n});
    grouped_gemm::Args wanted = operands.args;
    wanted.activation = activation, wanted.out = out;
    const auto args = operands.fitting(variant.name, wanted);
    if (!args) continue;
    EXPECT_TRUE(grouped_gemm::fuses_activation(*args, activation, {variant.name}, device.caps()));
    grouped_gemm::enqueue(device.stream, *args, {variant.name});
    EXPECT_LE(relative_error(out.values(), expected), allowed)
        << variant.name << ", " << args->a.describe() << " x " << name(args->weights.type) << " [" << product.n << ", "
        << product.k << "] -> " << name(out_dtype) << ", " << name(activation.function);
    ++ran;
  }
  return ran;
}

TEST_P(GroupedGemmActivationTest, IsThatOfTheSums) {
  Activation plain{ActivationFunction::relu2, false}, swapped{ActivationFunction::gelu}, limited;
  swapped.gate_is_right = true;
  limited.function = ActivationFunction::swigluoai, limited.limit = 1.5F;
  int ran = 0;
  // Each kernel once, and each way to have the halves.
  for (const auto& [dtype, activation] : {std::pair{DType::f32, Activation{}},
                                          {DType::f32, swapped},
                                          {DType::bf16, limited},
                                          {DType::f16, swapped},
                                          {DType::i8, plain}}) {
    const GroupedGemmCase shape{{3, 0, 8, 97}, 256, 70, dtype, dtype, DType::f32, 0, 0, 2};
    const GroupedProduct product = exact_product(shape);
    Operands operands(device(), shape, product);
    ran += check_variants(device(), operands, product, activation, DType::f32, 2e-6);
  }
  EXPECT_EQ(ran > 0, fuses(device().caps()));
}

TEST_P(GroupedGemmActivationTest, TakesTheTilesOfTensorCores) {
  if (!has_tensor_cores(device().caps())) GTEST_SKIP() << "no tensor cores";
  Activation ungated{ActivationFunction::relu, false}, swapped, limited{ActivationFunction::swigluoai};
  swapped.gate_is_right = true;
  limited.limit = 1.5F;
  for (const DType dtype : {DType::bf16, DType::i8}) {
    // Rows around tiles, gate panels that fill tiles of two and four panels or not.
    for (const std::vector<std::int64_t>& rows : std::vector<std::vector<std::int64_t>>{{0}, {1}, {17, 0, 200, 1, 70}})
      for (const std::int64_t n : {128, 384, 640})
        for (const DType out : {DType::f32, dtype == DType::i8 ? DType::f16 : dtype}) {
          const GroupedGemmCase shape{rows, n, 144, dtype, dtype, out, 0, 0, 3, true};
          const GroupedProduct product = exact_product(shape);
          Operands operands(device(), shape, product);
          for (const Activation& activation : {Activation{}, swapped, limited})
            check_variants(device(), operands, product, activation, out, tolerance(out));
        }
    const GroupedGemmCase odd{{5, 130}, 191, 80, dtype, dtype, DType::f32, 0, 0, 2, true};
    const GroupedProduct product = exact_product(odd);
    Operands operands(device(), odd, product);
    for (const DType out : {DType::f32, DType::bf16})
      check_variants(device(), operands, product, ungated, out, tolerance(out));
  }
}

TEST_P(GroupedGemmActivationTest, IsThatOfCodesWithGroups) {
  if (!has_tensor_cores(device().caps())) GTEST_SKIP() << "no tensor cores";
  const QuantizedCase blocks{CodeType::f8_e4m3, DType::f32, 128, 0, false, 128};
  for (const QuantizedCase& kind : {QuantizedCase{CodeType::i4, {}},
                                    {CodeType::i4, DType::f16, 32},
                                    {CodeType::u8, DType::f32, 32, 0, true, 1, CodePlacing::along_k, 1},
                                    {CodeType::f4_e2m1, DType::f8_e4m3, 16},
                                    blocks}) {
    const GroupedGemmCase shape{{5, 0, 140}, 384, 272, DType::bf16, DType::f32, DType::f32};
    GroupedProduct product = make_product(shape, 3);
    const QuantizedOnDevice weights(device().stream, kind, product.experts(), shape.n, shape.k, 5);
    product.weights = weights.values;
    Operands operands(device(), shape, product);
    operands.args.weights = weights.weights;
    check_variants(device(), operands, product, Activation{}, DType::f32, 2e-5);
  }
  const GroupedGemmCase shape{{5, 0, 140}, 384, 272};
  GroupedProduct product = make_product(shape, 3);
  const QuantizedOnDevice weights(device().stream, blocks, product.experts(), shape.n, shape.k, 5);
  const QuantizedRows rows(device().stream, DType::f8_e4m3, DType::f32, 128, product.rows, shape.k, 7);
  product.weights = weights.values, product.a = rows.values;
  Operands operands(device(), shape, product);
  operands.args.weights = weights.weights;
  operands.args.a = rows.a, operands.args.a_scale = rows.a_scale, operands.args.a_group = 128;
  // Sums of f8 products have some 14 bits in wgmma.
  check_variants(device(), operands, product, Activation{}, DType::f32, 0x1p-11);
}

TEST_P(GroupedGemmActivationTest, SaysWhyItRejects) {
  const GroupedGemmCase shape{{4, 3}, 256, 33};
  const Operands operands(device(), shape, make_product(shape, 1));
  const auto reason = [&](std::int64_t n, Activation activation, const char* variant) {
    grouped_gemm::Args args = operands.args;
    args.weights.n = n;
    args.activation = activation;
    args.out.shape[1] = activation.gated ? n / 2 : n;
    std::string text = grouped_gemm::reject(args, {variant}, device().caps());
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
