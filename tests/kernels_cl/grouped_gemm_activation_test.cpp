// Grouped GEMM with a fused activation: the epilogue applies it to the sums before the store.
#include <moecl/code_numbers.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "tests/cases/quantized_matrices.hpp"
#include "tests/kernels_cl/grouped_gemm_operands.hpp"
#include "tests/oracle/gated_activation.hpp"
#include "tests/oracle/quantize_groups.hpp"

namespace moecl::test {
namespace {

class GroupedGemmActivationTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(GroupedGemmActivationTest);

/// Small integers, whose sums are exact in every type and order. Scales are powers of two.
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

/// The error that storing `out` and the activation's functions may add, relative to the largest element.
double tolerance(DType out) { return out == DType::f32 ? 2e-6 : out == DType::bf16 ? 0x1p-8 : 0x1p-11; }

bool has_tensor_cores(const DeviceCaps& caps) { return caps.nv_compute_capability >= 80; }
bool fuses(const DeviceCaps& caps) {
  return has_tensor_cores(caps) || (caps.type == DeviceType::cpu && caps.preferred_float_width >= 4);
}

/// Runs every variant that applies the activation on this device. @return  how many ran
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
    EXPECT_TRUE(grouped_gemm::fuses_activation(variant.name, *args, activation, device.record()));
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
  // Each kernel once, and each arrangement of gate and up.
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
    // Numbers of rows around the tiles. Gate panels fill tiles of two and four panels, or do not.
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
  // wgmma keeps some 14 bits in a sum of f8 products.
  check_variants(device(), operands, product, Activation{}, DType::f32, 0x1p-11);
}

/// Grouped GEMM that applies an activation and stores codes. Rows and weights are both f8_e4m3 or both i8, with scales
/// for groups of 128.
class CodesOfProductTest : public OnEveryDevice {
 protected:
  static constexpr std::int64_t groups_of_k = 3;
  static constexpr unsigned char poison = 0x77;

  /// Changes the scales of some rows, so that groups of zeros, of tiny numbers, of infinity and of NaN arise.
  static void spread_scales(const TestDevice& device, const QuantizedRows& rows) {
    std::vector<float> scales(rows.scales.size() / sizeof(float));
    std::memcpy(scales.data(), rows.scales.data(), rows.scales.size());
    const float special[] = {0x1p-50F, 0x1p-62F, 0, INFINITY, NAN, 0x1p-36F};
    for (std::size_t row = 7, i = 0; row < static_cast<std::size_t>(rows.a.shape[0]); row += 19, ++i)
      for (std::size_t group = 0; group < groups_of_k; ++group)
        scales[groups_of_k * row + group] *= special[i % std::size(special)];
    write_blocking(device.stream, rows.scale_memory.view(), scales.data(), rows.scales.size());
  }

  /// The codes and scales that `args` stores instead of `numbers` [R, width] are the oracle's for `numbers`.
  void check_codes(grouped_gemm::Args args, const char* variant, const std::vector<double>& numbers,
                   quantize_groups::Args next) const {
    const std::int64_t rows = args.out.shape[0], width = args.out.shape[1],
                       groups = (width + next.group - 1) / next.group;
    const auto bytes_of = [](std::int64_t count) { return std::vector(static_cast<std::size_t>(count), poison); };
    // Codes start at an even place, with a column before and after them.
    const GuardedTensor q(device(), *storage_dtype(next.format), {rows, width + 2}, bytes_of(rows * (width + 2))),
        scale(device(), DType::f32, {rows, groups}, bytes_of(rows * groups * 4)),
        out(device(), DType::f32, {rows, width});
    args.out = out, next.x = out, next.scale = scale;
    next.q = TensorView(q.view().buffer.slice(1, q.view().size_bytes() - 1), q.view().dtype, {rows, width});
    next.q.stride[0] = width + 2;
    args.quantization = next;
    ASSERT_TRUE(grouped_gemm::fuses_quantization(variant, args, next, device().record()));
    grouped_gemm::enqueue(device().stream, args, {variant});
    const auto codes = q.read<unsigned char>();
    const auto scales = scale.read<float>();
    for (const double untouched : out.values()) ASSERT_TRUE(std::isnan(untouched));
    std::vector<unsigned char> expected = bytes_of(rows * (width + 2));
    for (std::int64_t row = 0; row < rows; ++row) {
      if (args.a_index.present() && row % 11 == 5) continue;  // its index is no row: see check
      for (std::int64_t group = 0; group < groups; ++group) {
        SCOPED_TRACE(testing::Message() << variant << ", row " << row << ", group " << group << " of " << next.group);
        const auto first = numbers.begin() + row * width + group * next.group;
        const oracle::QuantizedGroup of = oracle::quantize_group(
            std::vector<float>(first, first + std::min(next.group, width - group * next.group)), next);
        const float got = scales[static_cast<std::size_t>(row * groups + group)];
        ASSERT_TRUE(got == of.scale || (std::isnan(got) && std::isnan(of.scale))) << got << " is not " << of.scale;
        for (std::size_t i = 0; i < of.codes.size(); ++i)
          expected[static_cast<std::size_t>(row * (width + 2) + 1 + group * next.group) + i] =
              static_cast<unsigned char>(of.codes[i]);
      }
    }
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const bool are_nan = next.format != CodeType::i8 && (codes[i] & 127) == 127 && (expected[i] & 127) == 127;
      ASSERT_TRUE(are_nan || codes[i] == expected[i])
          << variant << ", row " << i / (width + 2) << ", column " << i % (width + 2) - 1 << ": " << int{codes[i]}
          << " is not " << int{expected[i]};
    }
  }

  /// @return  how many variants ran
  int check(const QuantizedCase& kind, std::int64_t width, const std::vector<std::int64_t>& groups, bool gathered,
            const std::vector<std::int64_t>& rows_of_expert) const {
    const std::int64_t k = kind.layout == PanelLayout::k_major ? groups_of_k * 128 : 272;
    GroupedGemmCase shape{rows_of_expert, 2 * width, k};
    shape.bias = gathered;
    const GroupedProduct product = make_product(shape, 3);
    const DType a = *storage_dtype(kind.type);
    const QuantizedOnDevice weights(device().stream, kind, product.experts(), shape.n, k, 5);
    const QuantizedRows rows(device().stream, a, DType::f32, 128, product.rows, k, 7);
    spread_scales(device(), rows);
    Operands operands(device(), shape, product);
    std::vector<std::int32_t> index;
    for (std::int32_t row = 0; row < product.rows; ++row)
      index.push_back(row % 11 == 5 ? (row % 2 != 0 ? -1 : 1 << 30)
                                    : (row * 5 + 3) % static_cast<std::int32_t>(product.rows));
    const GuardedTensor on_device(device(), DType::i32, {product.rows}, index);
    operands.args.weights = weights.weights;
    operands.args.a = rows.a, operands.args.a_scale = rows.a_scale, operands.args.a_group = 128;
    if (gathered) operands.args.a_index = on_device;
    int ran = 0;
    for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
      const GuardedTensor out(device(), DType::f32, {product.rows, width});
      grouped_gemm::Args args = operands.args;
      args.activation = Activation{}, args.out = out;
      quantize_groups::Args next;
      next.x = out, next.format = kind.type, next.group = groups.front();
      const DeviceTensor q(device().stream, a, {product.rows, width}),
          scale(device().stream, DType::f32, {product.rows, (width + next.group - 1) / next.group});
      next.q = q.view, next.scale = scale.view;
      grouped_gemm::Args with_codes = args;
      with_codes.quantization = next;
      if (!grouped_gemm::reject(with_codes, {variant.name}, device().record()).empty()) continue;
      grouped_gemm::enqueue(device().stream, args, {variant.name});
      const std::vector<double> numbers = out.values();
      for (const std::int64_t group : groups) {
        next.group = group;
        for (const quantize_groups::ScaleRule rule :
             {quantize_groups::ScaleRule::ratio, quantize_groups::ScaleRule::power_of_two}) {
          next.rule = rule;
          check_codes(args, variant.name, numbers, next);
        }
      }
      ++ran;
    }
    return ran;
  }
};
MOECL_ON_EVERY_DEVICE(CodesOfProductTest);

TEST_P(CodesOfProductTest, AreThoseOfItsRows) {
  const bool hopper = device().caps().nv_sm90a;
  const int expected = hopper ? 2 : 0;
  const auto groups_of = [](CodeType type) { return QuantizedCase{type, DType::f32, 128}; };
  QuantizedCase blocks{CodeType::f8_e4m3, DType::f32, 128, 0, false, 128};
  blocks.layout = PanelLayout::k_major;
  for (const bool gathered : {false, true}) {
    EXPECT_EQ(check(groups_of(CodeType::f8_e4m3), 256, {128, 32}, gathered, {5, 0, 140, 64}), expected);
    EXPECT_EQ(check(groups_of(CodeType::f8_e4m3), 192, {128, 64}, gathered, {130}), expected);
    if (!hopper) continue;  // no other device reads such panels
    EXPECT_EQ(check(blocks, 256, {128, 32}, gathered, {5, 0, 140, 64, 65}), 3);
    EXPECT_EQ(check(blocks, 192, {128, 64}, gathered, {130}), 3);
  }
  EXPECT_EQ(check(groups_of(CodeType::i8), 128, {128}, true, {1, 70}), expected);
  EXPECT_EQ(check(groups_of(CodeType::f8_e5m2), 64, {64}, false, {40}), expected);
}

TEST_P(CodesOfProductTest, SaysWhyItRejects) {
  using quantize_groups::Quotient, quantize_groups::ScaleRule, testing::HasSubstr;
  const GroupedGemmCase shape{{4, 3}, 256, 128};
  const QuantizedOnDevice weights(device().stream, {CodeType::f8_e4m3, DType::f32, 128, 0, false, 1}, 2, 256, 128, 5);
  const QuantizedRows rows(device().stream, DType::f8_e4m3, DType::f32, 128, 7, 128, 7);
  const Operands operands(device(), shape, make_product(shape, 1));
  const DeviceTensor out(device().stream, DType::f32, {7, 128}), q(device().stream, DType::f8_e4m3, {7, 129}),
      scale(device().stream, DType::f32, {7, 1}), scales(device().stream, DType::f32, {7, 3});
  grouped_gemm::Args args = operands.args;
  args.a = rows.a, args.a_scale = rows.a_scale, args.a_group = 128, args.weights = weights.weights;
  args.activation = Activation{}, args.out = out.view;
  args.quantization.x = out.view, args.quantization.q = TensorView(q.view.buffer, DType::f8_e4m3, {7, 128}),
  args.quantization.scale = scale.view;
  args.quantization.group = 128;
  const auto reason = [&](const char* variant, const auto& change) {
    grouped_gemm::Args changed = args;
    change(changed);
    EXPECT_FALSE(grouped_gemm::fuses_quantization(variant, changed, changed.quantization, device().record()));
    return grouped_gemm::reject(changed, {variant}, device().record());
  };
  const bool wide = device().caps().local_mem_bytes >= std::uint64_t{1} << 18;
  if (device().caps().preferred_float_width >= 4 && wide) {
    EXPECT_THAT(reason("t0_tile", [](grouped_gemm::Args&) {}), HasSubstr("variant t0_tile: makes no codes"));
  }
  if (!device().caps().nv_sm90a) return;
  const char* const variant = "nv_sm90a_groups_64";
  EXPECT_EQ(grouped_gemm::reject(args, {variant}, device().record()), "");
  EXPECT_THAT(reason("nv_sm89_f8_64", [](grouped_gemm::Args&) {}), HasSubstr("makes no codes"));
  EXPECT_THAT(reason(variant, [](grouped_gemm::Args& of) { of.quantization.rule = ScaleRule::mx_ceil; }),
              HasSubstr("expected quotients by the largest magnitudes"));
  EXPECT_THAT(reason(variant, [](grouped_gemm::Args& of) { of.quantization.quotient = Quotient::reciprocal; }),
              HasSubstr("expected quotients by the largest magnitudes"));
  EXPECT_THAT(reason(variant, [&](grouped_gemm::Args& of) { of.quantization.x = operands.args.a; }),
              HasSubstr("expected out, f32[7, 128], as its x"));
  EXPECT_THAT(
      reason(variant, [&](grouped_gemm::Args& of) { of.quantization.group = 48, of.quantization.scale = scales.view; }),
      HasSubstr("expected groups of a multiple of 16 columns that divides 128, got 48"));
  EXPECT_THAT(reason(variant, [](grouped_gemm::Args& of) { of.quantization.q.stride[0] = 129; }),
              HasSubstr("expected codes of 8 bits from an even place on"));
}

TEST_P(GroupedGemmActivationTest, SaysWhyItRejects) {
  const GroupedGemmCase shape{{4, 3}, 256, 33};
  const Operands operands(device(), shape, make_product(shape, 1));
  const auto reason = [&](std::int64_t n, Activation activation, const char* variant) {
    grouped_gemm::Args args = operands.args;
    args.weights.n = n;
    args.activation = activation;
    args.out.shape[1] = activation.gated ? n / 2 : n;
    std::string text = grouped_gemm::reject(args, {variant}, device().record());
    EXPECT_FALSE(grouped_gemm::fuses_activation(variant, args, activation, device().record())) << text;
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
