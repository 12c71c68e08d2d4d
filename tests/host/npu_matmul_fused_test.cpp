// Fused grouped products: with swish and int8 rows, or with the sums of the tokens.
#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include "host/npu/describe_matmul.hpp"
#include "tests/host/npu_matmul_inputs.hpp"

namespace moecl::test {
namespace {

class NpuMatmulFusedTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(NpuMatmulFusedTest);

/// int8 rows times int8 or int4 weights with all their scales: the part that the fused operators share.
struct Fused {
  Inputs inputs;
  std::int64_t experts, m, k, n, groups;
  bool int4, assist;
  Groups rows;
  TensorView x, x_scale, assist_matrix;
  TensorList weight, scale;
  std::vector<double> values;  ///< [M, N]; NaN in rows of no group

  Fused(const TestDevice& device, std::mt19937_64& engine, Layout layout, std::int64_t list_type, std::int64_t range)
      : inputs(device),
        experts(between(engine, 1, 4)),
        m(between(engine, 0, 12)),
        k(8 * between(engine, 1, 2)),
        n(16 * between(engine, 1, 5)),
        groups(1),
        int4(between(engine, 0, 1) == 0),
        assist(int4 && between(engine, 0, 1) == 0) {
    if (int4) groups = one_of<std::int64_t>(engine, {1, 2, 8});
    rows = random_groups(inputs, engine, experts, m, list_type);
    GroupedProduct product;
    product.n = n, product.k = k, product.rows = m, product.rows_of_expert = rows.counts;
    product.a = grid(engine, m * k, -range, range - 1);
    if (rows.sum > 0 && between(engine, 0, 3) == 0 && !assist) std::fill_n(product.a.begin(), k, 0);
    poison_rows(product.a, DType::i8, k, rows.sum);
    x = inputs.put(DType::i8, {m, k}, product.a);
    const std::vector<double> codes = grid(engine, experts * k * n, int4 ? -8 : -range, int4 ? 7 : range - 1);
    weight = put_weights(inputs, int4 ? DType::i32 : DType::i8, layout, k, n, codes);
    const std::vector<double> scales = powers(engine, experts * groups * n, 2, 4);
    const TensorView all = inputs.put(DType::f32, {experts, groups, n}, scales);
    for (std::int64_t e = 0; layout == Layout::list && e < experts; ++e) scale.push_back(npu::as_rows(all.rows(e, 1)));
    if (layout != Layout::list) scale = {groups == 1 && between(engine, 0, 1) == 0 ? npu::as_rows(all) : all};
    if (groups == 1) product.weight_scale = scales;
    product.weights =
        oracle::columns_of(groups == 1 ? codes : oracle::dequantized(codes, k, n, groups, scales, {}), k, n);
    product.a_scale = powers(engine, m, 1, 3);
    x_scale = inputs.put(DType::f32, {m}, product.a_scale);
    if (assist) {
      for (double& value : product.a) value = oracle::nibbles(value);
      product.bias = grid(engine, experts * n, -9, 9, 0.25);
      product.a_scale_bias = true;
      assist_matrix = inputs.put(DType::f32, {experts, n}, product.bias);
    }
    values = m == 0 ? std::vector<double>() : grouped_gemm_oracle(product).values;
  }

  std::string describe() const {
    return x.describe() + " x " + weight.front().describe() + ", scale " + scale.front().describe() +
           (assist ? ", assist" : "");
  }
};

/// Codes may differ from the exact quotient by half a unit plus exp's rounding. Rows past the groups stay unwritten.
std::vector<Expected> quantized(const Fused& fused, double limit, const std::vector<double>& smooth,
                                npu::SwigluQuantRounding rounding) {
  const oracle::SwigluQuant exact = oracle::swiglu_quant(fused.values, fused.n, limit, smooth);
  // next to 127 half a unit of f16 is 1/32
  const double extra = rounding == npu::SwigluQuantRounding::reciprocal ? 1e-3 : 1.0 / 31;
  return {{exact.quotients, defined_rows(fused.rows.sum, fused.m, fused.n / 2), 0.5 + extra, 0},
          {exact.scale, defined_rows(fused.rows.sum, fused.m, 1), 1e-37, 4e-6}};
}

const std::vector<npu::SwigluQuantRounding> roundings = {npu::SwigluQuantRounding::reciprocal,
                                                         npu::SwigluQuantRounding::double_rounding};

TEST_P(NpuMatmulFusedTest, SwigluQuantAgreesWithTheOracle) {
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    const Fused fused(device(), engine, one_of<Layout>(engine, {Layout::tensor, Layout::transposed}), 0, 8);
    npu::GroupedMatmulSwigluQuantArgs args;
    args.x = fused.x, args.weight = fused.weight.front(), args.group_list = fused.rows.list;
    args.weight_scale = fused.scale.front(), args.x_scale = fused.x_scale, args.bias = fused.assist_matrix;
    args.rounding = one_of(engine, roundings);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << fused.describe());
    expect_outputs(device(), args, quantized(fused, 0, {}, args.rounding));
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuMatmulFusedTest, SwigluQuantOfVllmAscendAgreesWithTheOracle) {
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    const Fused fused(device(), engine, Layout::tensor, 0, 8);
    npu::CAscendGroupedMatmulSwigluQuantArgs args;
    args.x = fused.x, args.weight = fused.weight.front(), args.group_list = fused.rows.list;
    args.weight_scale = fused.scale.front(), args.x_scale = fused.x_scale, args.bias = fused.assist_matrix;
    args.swiglu_limit = one_of<double>(engine, {-1, 0, 0.5, 2, 7});
    args.rounding = one_of(engine, roundings);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << fused.describe() << ", limit " << args.swiglu_limit);
    expect_outputs(device(), args, quantized(fused, args.swiglu_limit, {}, args.rounding));
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuMatmulFusedTest, SwigluQuantV2AgreesWithTheOracle) {
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    npu::GroupedMatmulSwigluQuantV2Args args;
    args.group_list_type = between(engine, 0, 1);
    Fused fused(device(), engine, one_of<Layout>(engine, {Layout::tensor, Layout::list, Layout::transposed}),
                args.group_list_type, 8);
    args.x = fused.x, args.weight = fused.weight, args.group_list = fused.rows.list;
    args.weight_scale = fused.scale, args.x_scale = fused.x_scale;
    if (fused.assist) args.weight_assist_matrix = {fused.assist_matrix};
    args.dequant_mode = fused.groups > 1 ? 1 : 0;
    args.rounding = one_of(engine, roundings);
    std::vector<double> smooth;
    if (between(engine, 0, 1) == 0) {
      const std::int64_t half = fused.n / 2;
      const std::vector<double> of_expert = powers(engine, fused.experts * half, 0, 2);
      args.smooth_scale = fused.inputs.put(DType::f32, {fused.experts, half}, of_expert);
      smooth.resize(at(fused.m * half));
      std::int64_t row = 0;
      for (std::int64_t expert = 0; expert < fused.experts; ++expert)
        for (const std::int64_t end = row + fused.rows.counts[at(expert)]; row < end; ++row)
          std::copy_n(of_expert.begin() + expert * half, half, smooth.begin() + row * half);
    }
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << fused.describe());
    expect_outputs(device(), args, quantized(fused, 0, smooth, args.rounding));
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuMatmulFusedTest, FinalizeRoutingAgreesWithTheOracle) {
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    npu::GroupedMatmulFinalizeRoutingArgs args;
    args.group_list_type = between(engine, 0, 1);
    Fused fused(device(), engine, one_of<Layout>(engine, {Layout::tensor, Layout::transposed}), args.group_list_type,
                4);
    args.x = fused.x, args.weight = fused.weight.front(), args.group_list = fused.rows.list;
    args.scale = fused.scale.front(), args.pertoken_scale = fused.x_scale, args.bias = fused.assist_matrix;
    args.output_bs = between(engine, 0, 9);
    const std::int64_t tokens = args.output_bs == 0 ? fused.m : args.output_bs;
    if (between(engine, 0, 2) > 0) args.dtype = one_of<DType>(engine, {DType::f32, DType::bf16});
    std::vector<double> y(at(tokens * fused.n)), logit;
    std::vector<double> destinations = grid(engine, fused.m, 0, std::max<std::int64_t>(tokens - 1, 0));
    std::fill(destinations.begin() + fused.rows.sum, destinations.end(), -77);
    args.row_index = fused.inputs.put(one_of<DType>(engine, {DType::i64, DType::i32}), {fused.m}, destinations);
    if (between(engine, 0, 3) > 0) {
      logit = grid(engine, fused.m, -4, 4, 0.25);
      std::vector<double> poisoned = logit;
      poison_rows(poisoned, DType::f32, 1, fused.rows.sum);
      args.logit = fused.inputs.put(DType::f32, {fused.m}, poisoned);
    }
    oracle::scatter_add(fused.values, destinations, logit, fused.rows.sum, fused.n, y);
    if (tokens > 0 && between(engine, 0, 1) == 0) {
      const std::int64_t shared = between(engine, 1, tokens);
      args.shared_input_offset = between(engine, 0, tokens - shared);
      args.shared_input_weight = 0.5;
      const std::vector<double> rows = grid(engine, shared * fused.n, -8, 8, 0.25);
      args.shared_input = fused.inputs.put(DType::bf16, {shared, fused.n}, rows);
      for (std::size_t j = 0; j < rows.size(); ++j) y[at(args.shared_input_offset * fused.n) + j] += 0.5 * rows[j];
    }
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << fused.describe() << ", " << tokens << " tokens");
    expect_outputs(device(), args, {{rounded(args.dtype.value_or(DType::f32), y), {}}});
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuMatmulFusedTest, SayWhatTheyRefuse) {
  std::mt19937_64 engine(1);
  Inputs inputs(device());
  npu::GroupedMatmulSwigluQuantV2Args good;
  good.x = inputs.put(DType::i8, {4, 8}, std::vector<double>(32));
  good.weight = {inputs.put(DType::i8, {2, 8, 6}, std::vector<double>(96))};
  good.weight_scale = {inputs.put(DType::f32, {2, 6}, std::vector<double>(12))};
  good.x_scale = inputs.put(DType::f32, {4}, std::vector<double>(4));
  good.group_list = inputs.put(DType::i64, {2}, {1, 4});
  const auto reason = [&](auto args, auto change) -> std::string {
    change(args);
    return refusal_of(args, device());
  };
  using Args = npu::GroupedMatmulSwigluQuantV2Args;
  using ::testing::HasSubstr;
  EXPECT_EQ(reason(good, [](Args&) {}), "");
  EXPECT_THAT(reason(good, [](Args& args) { args.dequant_mode = 2; }), HasSubstr("MX types are not supported"));
  EXPECT_THAT(reason(good, [](Args& args) { args.group_list_type = 2; }), HasSubstr("group_list_type: 2"));
  EXPECT_THAT(reason(good, [](Args& args) { args.x_scale = {}; }), HasSubstr("x_scale: is needed"));
  EXPECT_THAT(reason(good, [](Args& args) { args.weight_scale = {}; }), HasSubstr("scale: is needed"));
  EXPECT_THAT(reason(good, [](Args& args) { args.weight[0].shape[2] = 5; }), HasSubstr("even number of columns"));
  EXPECT_THAT(reason(good, [](Args& args) { args.weight_assist_matrix = args.weight_scale; }),
              HasSubstr("bias: expected none or i32 beside i8 weights"));
  npu::GroupedMatmulFinalizeRoutingArgs finalize;
  finalize.x = good.x, finalize.weight = good.weight[0], finalize.scale = good.weight_scale[0];
  finalize.group_list = good.group_list, finalize.row_index = inputs.put(DType::i64, {4}, {0, 1, 2, 3});
  finalize.shared_input = inputs.put(DType::bf16, {2, 6}, std::vector<double>(12));
  using Finalize = npu::GroupedMatmulFinalizeRoutingArgs;
  EXPECT_EQ(reason(finalize, [](Finalize&) {}), "");
  EXPECT_THAT(reason(finalize, [](Finalize& args) { args.shared_input_offset = 3; }),
              HasSubstr("shared_input: expected [n, 6] from row 3 within 4 rows, got bf16[2, 6]"));
  EXPECT_THAT(reason(finalize, [](Finalize& args) { args.output_bs = -1; }), HasSubstr("output_bs: -1 is negative"));
  EXPECT_THAT(reason(finalize, [](Finalize& args) { args.row_index = {}; }), HasSubstr("destinations: expected"));
}

}  // namespace
}  // namespace moecl::test
