#include "tests/oracle/npu_matmul.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "host/npu/describe_matmul.hpp"
#include "tests/cases/npu_call.hpp"
#include "tests/cases/self_test.hpp"
#include "tests/oracle/grouped_gemm.hpp"

namespace moecl::test {
namespace {

constexpr std::int64_t experts = 3, rows = 7, k = 16, n = 24;

/// Small whole numbers in [-half, half): products and sums are exact.
std::vector<double> whole(std::size_t count, double half, std::uint64_t seed) {
  std::vector<double> values = normal(count, seed);
  for (double& value : values) value = std::clamp(std::round(value * half / 2), -half, half - 1);
  return values;
}

/// An int8 product with all scales. Its three experts have rows 0 to 2, no rows, and rows 3 to 5. No expert has row 6.
struct Operands {
  GroupedProduct product;
  std::vector<double> values;
  DeviceTensor x, weight, scale, x_scale, counts;

  explicit Operands(StreamView stream)
      : product(make()),
        values(grouped_gemm_oracle(product).values),
        x(stream, DType::i8, {rows, k}, product.a),
        weight(stream, DType::i8, {experts, k, n}, whole(experts * k * n, 16, 2)),
        scale(stream, DType::f32, {experts, n}, product.weight_scale),
        x_scale(stream, DType::f32, {rows}, product.a_scale),
        counts(stream, DType::i64, {experts}, {3, 0, 3}) {}

  static GroupedProduct make() {
    GroupedProduct made;
    made.n = n, made.k = k, made.rows = rows, made.rows_of_expert = {3, 0, 3};
    made.a = whole(rows * k, 16, 1);
    made.weights = oracle::columns_of(whole(experts * k * n, 16, 2), k, n);
    made.weight_scale.assign(experts * n, 0.0625);
    made.a_scale.assign(rows, 0.5);
    return made;
  }
};

/// The error of the first six rows. The last row belongs to no expert.
double error_of_rows(std::vector<double> got, std::vector<double> expected) {
  got.resize(got.size() / rows * 6), expected.resize(expected.size() / rows * 6);
  return relative_error(got, expected);
}

/// The largest distance of codes from the exact quotients, minus the half unit of rounding.
double beyond_half(std::vector<double> codes, const std::vector<double>& quotients) {
  double worst = codes.size() == quotients.size() ? 0 : 1;
  for (std::size_t i = 0; i < codes.size() / rows * 6; ++i)
    worst = std::max(worst, std::abs(codes[i] - quotients[i]) - 0.5);
  return worst;
}

}  // namespace

std::vector<SelfTestResult> self_test_npu_matmul(StreamView stream) {
  const Operands of(stream);
  const std::string shape = fmt::format("i8[{}, {}] x i8[{}, {}, {}]", rows, k, experts, k, n);
  std::vector<SelfTestResult> results;

  npu::QuantMatmulArgs quant;
  quant.x1 = of.x, quant.output_dtype = DType::f32;
  quant.x2 = TensorView(of.weight.buffer.view(), DType::i8, {k, n});
  quant.scale = TensorView(of.scale.buffer.view(), DType::f32, {n});
  quant.pertoken_scale = of.x_scale;
  GroupedProduct dense = of.product;
  dense.rows_of_expert = {rows};
  results.push_back({"npu_quant_matmul", "y", shape,
                     relative_error(call_operator(stream, quant).front(), grouped_gemm_oracle(dense).values), 0});

  npu::GroupedMatmulArgs grouped;
  grouped.x = {of.x}, grouped.weight = {of.weight}, grouped.scale = {of.scale}, grouped.per_token_scale = {of.x_scale};
  grouped.group_list = of.counts, grouped.group_list_type = 1, grouped.group_type = 0, grouped.split_item = 3;
  grouped.output_dtype = DType::f32;
  results.push_back(
      {"npu_grouped_matmul", "y", shape, error_of_rows(call_operator(stream, grouped).front(), of.values), 0});

  const DeviceTensor ends(stream, DType::i64, {experts}, {3, 3, 6});
  const oracle::SwigluQuant exact = oracle::swiglu_quant(of.values, n, 0, {}),
                            limited = oracle::swiglu_quant(of.values, n, 2, {});
  const auto add_quantized = [&](const char* name, const auto& args, const oracle::SwigluQuant& expected) {
    const std::vector<std::vector<double>> got = call_operator(stream, args);
    results.push_back({name, "output", shape, beyond_half(got[0], expected.quotients), 1e-3});
    results.push_back({name, "output_scale", shape, error_of_rows(got[1], expected.scale), 4e-6});
  };
  npu::GroupedMatmulSwigluQuantArgs swiglu;
  swiglu.x = of.x, swiglu.weight = of.weight, swiglu.group_list = ends, swiglu.weight_scale = of.scale;
  swiglu.x_scale = of.x_scale;
  add_quantized("npu_grouped_matmul_swiglu_quant", swiglu, exact);
  npu::GroupedMatmulSwigluQuantV2Args v2;
  v2.x = of.x, v2.weight = {of.weight}, v2.weight_scale = {of.scale}, v2.x_scale = of.x_scale;
  v2.group_list = of.counts, v2.group_list_type = 1;
  add_quantized("npu_grouped_matmul_swiglu_quant_v2", v2, exact);
  npu::CAscendGroupedMatmulSwigluQuantArgs own;
  own.x = of.x, own.weight = of.weight, own.group_list = ends, own.weight_scale = of.scale, own.x_scale = of.x_scale;
  own.swiglu_limit = 2;
  add_quantized("_C_ascend.grouped_matmul_swiglu_quant", own, limited);

  const std::vector<double> destinations = {1, 0, 1, 3, 3, 1, 0};
  const DeviceTensor row_index(stream, DType::i64, {rows}, destinations);
  npu::GroupedMatmulFinalizeRoutingArgs finalize;
  finalize.x = of.x, finalize.weight = of.weight, finalize.group_list = of.counts, finalize.scale = of.scale;
  finalize.pertoken_scale = of.x_scale, finalize.row_index = row_index, finalize.output_bs = 4;
  std::vector<double> y(4 * n);
  oracle::scatter_add(of.values, destinations, {}, 6, n, y);
  results.push_back({"npu_grouped_matmul_finalize_routing", "y", shape,
                     relative_error(call_operator(stream, finalize).front(), y), 0});
  return results;
}

}  // namespace moecl::test
