#include <moecl/error.hpp>

#include <gmock/gmock.h>

#include "host/npu/describe_matmul.hpp"
#include "tests/host/npu_matmul_inputs.hpp"

namespace moecl::test {
namespace {

class NpuMatmulTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(NpuMatmulTest);

/// Values as an output of that type holds them, rounded once; for i8 with ties to even, and clamped.
std::vector<double> stored(DType dtype, std::vector<double> values) {
  if (dtype != DType::i8) return rounded(dtype, values);
  for (double& value : values)
    if (!std::isnan(value)) value = std::clamp(std::nearbyint(value), -128.0, 127.0);
  return values;
}

TEST_P(NpuMatmulTest, QuantMatmulAgreesWithTheOracle) {
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    Inputs inputs(device());
    npu::QuantMatmulArgs args;
    const std::int64_t b = between(engine, 1, 2), m = between(engine, 0, 9), k = 8 * between(engine, 1, 3),
                       n = 8 * between(engine, 1, 9);
    const DType weights = one_of<DType>(engine, {DType::i8, DType::i8, DType::i32});
    const Layout layout = one_of<Layout>(engine, {Layout::tensor, Layout::transposed});
    args.output_dtype =
        one_of<std::optional<DType>>(engine, {std::nullopt, DType::i8, DType::i32, DType::f16, DType::bf16});
    const DType out = args.output_dtype.value_or(DType::i8);
    const std::vector<double> codes =
        grid(engine, k * n, weights == DType::i8 ? -64 : -8, weights == DType::i8 ? 63 : 7);
    GroupedProduct product;
    product.n = n, product.k = k, product.rows = b * m, product.rows_of_expert = {b * m};
    product.a = grid(engine, b * m * k, -64, 63);
    product.weights = oracle::columns_of(codes, k, n);
    args.x1 = inputs.put(DType::i8, {b, m, k}, product.a);
    if (b == 1 && between(engine, 0, 1) == 0) args.x1 = npu::as_rows(args.x1);
    TensorView x2 = put_weights(inputs, weights, layout, k, n, codes).front();
    args.x2 = x2.rows(0, 1);
    args.x2.rank = 2, args.x2.shape = {x2.shape[1], x2.shape[2]}, args.x2.stride = {x2.stride[1], x2.stride[2]};
    const bool one_scale = between(engine, 0, 2) == 0;
    const std::vector<double> scale = powers(engine, one_scale ? 1 : n, 4, 7);
    const std::vector<std::int64_t> scale_shape = {one_scale ? 1 : n};
    args.scale = between(engine, 0, 3) == 0
                     ? inputs.put_packed(scale_shape, scale)
                     : inputs.put(one_of<DType>(engine, {DType::f32, DType::bf16}), scale_shape, scale);
    const std::int64_t bias = between(engine, 0, out == DType::i8 || out == DType::i32 ? 1 : 2);
    if (bias == 1)
      product.sum_bias = grid(engine, n, -900, 900), args.bias = inputs.put(DType::i32, {n}, product.sum_bias);
    if (bias == 2) product.bias = grid(engine, n, -9, 9), args.bias = inputs.put(DType::bf16, {n}, product.bias);
    if (out != DType::i32) {
      product.weight_scale = one_scale ? std::vector<double>(at(n), scale[0]) : scale;
      if (between(engine, 0, 1) == 0 && m > 0) {
        product.a_scale = powers(engine, b * m, 1, 3);
        args.pertoken_scale = inputs.put(DType::f32, {b * m}, product.a_scale);
      }
      if (out == DType::i8 && between(engine, 0, 1) == 0) {
        const bool one = between(engine, 0, 1) == 0;
        const std::vector<double> offset = grid(engine, one ? 1 : n, -9, 9);
        product.bias = one ? std::vector<double>(at(n), offset[0]) : offset;
        args.offset = inputs.put(DType::f32, {one ? 1 : n}, offset);
      }
    }
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << args.x1.describe() << " x " << args.x2.describe()
                                    << " -> " << name(out) << ", bias " << args.bias.describe() << ", scale "
                                    << args.scale.describe());
    expect_outputs(device(), args, {{stored(out, grouped_gemm_oracle(product).values), {}}});
    if (HasFatalFailure()) return;
  }
}

/// One grouped product with groups of rows, in all its number formats.
TEST_P(NpuMatmulTest, GroupedMatmulAgreesWithTheOracle) {
  enum class Format { floats, integers, per_group, assist, antiquant };
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    Inputs inputs(device());
    npu::GroupedMatmulArgs args;
    const Format format = one_of<Format>(engine, {Format::floats, Format::floats, Format::integers, Format::integers,
                                                  Format::per_group, Format::assist, Format::antiquant});
    const std::int64_t experts = between(engine, 1, 5), m = between(engine, 0, 14), k = 8 * between(engine, 1, 3),
                       n = 8 * between(engine, 1, 9),
                       groups = format == Format::per_group || format == Format::antiquant
                                    ? one_of<std::int64_t>(engine, {1, 2, 4, 8})
                                    : 1;
    const bool floats = format == Format::floats, integers = !floats && format != Format::antiquant,
               int4 = format == Format::assist || (!floats && between(engine, 0, 1) == 0);
    const DType x = integers ? DType::i8
                             : one_of<DType>(engine, floats ? std::vector<DType>{DType::f32, DType::f16, DType::bf16}
                                                            : std::vector<DType>{DType::f16, DType::bf16});
    const DType weights = floats ? x : int4 ? DType::i32 : DType::i8;
    const Layout layout = one_of<Layout>(engine, {Layout::tensor, Layout::list, Layout::transposed});
    const DType out = !integers ? x
                      : format == Format::integers
                          ? one_of<DType>(engine, {DType::bf16, DType::f16, DType::i32, DType::i8})
                          : DType::bf16;
    if (integers) args.output_dtype = out;
    args.split_item = between(engine, 2, 3), args.group_type = 0, args.group_list_type = between(engine, 0, 2);
    const Groups rows = random_groups(inputs, engine, experts, m, args.group_list_type);
    args.group_list = rows.list;
    const bool full = format == Format::integers && out == DType::i32;
    const std::vector<double> codes = floats ? grid(engine, experts * k * n, -8, 8, 0.125)
                                      : int4 ? grid(engine, experts * k * n, -8, 7)
                                             : grid(engine, experts * k * n, full ? -128 : -64, full ? 127 : 63);

    GroupedProduct product;
    product.n = n, product.k = k, product.rows = m, product.rows_of_expert = rows.counts;
    product.a = integers ? grid(engine, m * k, full ? -128 : -64, full ? 127 : 63) : grid(engine, m * k, -8, 8, 0.25);
    poison_rows(product.a, x, k, rows.sum);
    args.x = {inputs.put(x, {m, k}, product.a)};
    args.weight = put_weights(inputs, weights, layout, k, n, codes);
    const auto channels = [&](std::int64_t of_groups) {
      return of_groups > 1 || between(engine, 0, 1) == 0 ? std::vector<std::int64_t>{experts, of_groups, n}
                                                         : std::vector<std::int64_t>{experts, n};
    };
    // One tensor, or a list where the weights are a list.
    const auto put_vectors = [&](DType dtype, const std::vector<std::int64_t>& dims,
                                 const std::vector<double>& values) {
      const TensorView all = dtype == DType::i64 ? inputs.put_packed(dims, values) : inputs.put(dtype, dims, values);
      if (layout != Layout::list) return TensorList{all};
      TensorList list;
      for (std::int64_t e = 0; e < experts; ++e) list.push_back(npu::as_rows(all.rows(e, 1)));
      return list;
    };
    std::vector<double> dense = codes;
    if (format == Format::antiquant) {
      const std::vector<double> scale = powers(engine, experts * groups * n, 3, 5);
      std::vector<double> offset;
      args.antiquant_scale = put_vectors(x, channels(groups), scale);
      if (between(engine, 0, 1) == 0) {
        offset = grid(engine, experts * groups * n, -8, 8);
        args.antiquant_offset = put_vectors(x, channels(groups), offset);
      }
      dense = rounded(x, oracle::dequantized(codes, k, n, groups, scale, offset));
    } else if (integers && out != DType::i32) {
      const std::vector<double> scale = powers(engine, experts * groups * n, 4, 7);
      args.scale = put_vectors(one_of<DType>(engine, {DType::f32, DType::bf16, DType::i64}), channels(groups), scale);
      if (groups > 1)
        dense = oracle::dequantized(codes, k, n, groups, scale, {});
      else
        product.weight_scale = scale;
      if (between(engine, 0, 2) > 0 && m > 0) {
        product.a_scale = powers(engine, m, 1, 3);
        args.per_token_scale = {inputs.put(DType::f32, {m}, product.a_scale)};
      }
    }
    product.weights = oracle::columns_of(dense, k, n);
    const bool sum_bias = format == Format::integers && between(engine, 0, 1) == 0;
    if (sum_bias) {
      product.sum_bias = grid(engine, experts * n, -900, 900);
      args.bias = put_vectors(DType::i32, {experts, n}, product.sum_bias);
    } else if (format == Format::assist || ((floats || format == Format::antiquant) && between(engine, 0, 1) == 0)) {
      product.bias = grid(engine, experts * n, -9, 9, 0.25);
      args.bias = put_vectors(x == DType::f16 ? DType::f16 : DType::f32, {experts, n}, product.bias);
    }
    if (format == Format::assist) {
      for (double& value : product.a) value = oracle::nibbles(value);
      product.a_scale_bias = true;
    }
    if (out == DType::i8 && between(engine, 0, 1) == 0) {
      product.bias = grid(engine, experts * n, -9, 9);
      args.offset = put_vectors(DType::f32, {experts, n}, product.bias);
    }
    std::vector<double> values = grouped_gemm_oracle(product).values;
    Expected expected;
    if (!product.a_scale.empty() && is_activation_dtype(out) && between(engine, 0, 1) == 0) {
      args.act_type = one_of<std::int64_t>(engine, {1, 2, 4, 5});
      double largest = 0;
      for (double& value : values) {
        largest = std::max(largest, std::abs(value));
        value = oracle::activation(args.act_type, value);
      }
      // the device's exp, then a rounding that may fall on the other side of a tie; 1 + tanh cancels
      if (args.act_type != 1) expected.relative = out == DType::bf16 ? 0x1p-7 : 0x1p-10, expected.absolute = 0x1p-24;
      if (args.act_type == 2) expected.absolute = 0x1p-23 * largest;
    }
    expected.values = stored(out, values);
    expected.defined = defined_rows(rows.sum, m, n);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << args.x[0].describe() << " x "
                                    << args.weight[0].describe() << " -> " << name(out) << ", " << groups
                                    << " groups, list type " << args.group_list_type << ", act_type " << args.act_type);
    expect_outputs(device(), args, {expected});
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuMatmulTest, GroupedMatmulPairsListsUp) {
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    Inputs inputs(device());
    npu::GroupedMatmulArgs args;
    args.split_item = between(engine, 0, 3);
    args.group_type = one_of<std::int64_t>(engine, {-1, 0});
    const std::int64_t pairs = between(engine, args.group_type == 0 ? 2 : 1, 4), common = between(engine, 1, 70);
    const bool one_y = args.split_item >= 2, bias = between(engine, 0, 1) == 0;
    std::vector<Expected> expected(one_y ? 1 : at(pairs));
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      GroupedProduct product;
      product.k = between(engine, 1, 20), product.n = one_y ? common : between(engine, 1, 70);
      const std::int64_t b = args.group_type == -1 && !one_y ? between(engine, 1, 2) : 1, m = between(engine, 0, 5);
      product.rows = b * m, product.rows_of_expert = {b * m};
      product.a = grid(engine, b * m * product.k, -8, 8, 0.25);
      const std::vector<double> weights = grid(engine, product.k * product.n, -8, 8, 0.125);
      product.weights = oracle::columns_of(weights, product.k, product.n);
      args.x.push_back(b > 1 ? inputs.put(DType::f16, {b, m, product.k}, product.a)
                             : inputs.put(DType::f16, {m, product.k}, product.a));
      args.weight.push_back(inputs.put(DType::f16, {product.k, product.n}, weights));
      if (bias) {
        product.bias = grid(engine, product.n, -9, 9, 0.25);
        args.bias.push_back(inputs.put(DType::f16, {product.n}, product.bias));
      }
      const std::vector<double> values = rounded(DType::f16, grouped_gemm_oracle(product).values);
      Expected& y = expected[one_y ? 0 : at(pair)];
      y.values.insert(y.values.end(), values.begin(), values.end());
    }
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << pairs << " pairs, split_item " << args.split_item);
    expect_outputs(device(), args, expected);
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuMatmulTest, GroupedMatmulSplitsK) {
  for (int i = 0; i < property_cases(device()); ++i) {
    std::mt19937_64 engine(static_cast<std::uint64_t>(i));
    Inputs inputs(device());
    npu::GroupedMatmulArgs args;
    args.split_item = between(engine, 2, 3), args.group_type = 2, args.group_list_type = between(engine, 0, 1);
    const DType dtype = one_of<DType>(engine, {DType::f32, DType::f16, DType::bf16});
    const std::int64_t experts = between(engine, 1, 5), m = between(engine, 0, 9), k = between(engine, 1, 40),
                       n = between(engine, 1, 70);
    const Groups groups = random_groups(inputs, engine, experts, k, args.group_list_type);
    args.group_list = groups.list;
    GroupedProduct product;
    product.n = n, product.k = k, product.rows = experts * m;
    product.rows_of_expert.assign(at(experts), m);
    double end = 0;
    for (const std::int64_t count : groups.counts) product.k_ends.push_back(end += static_cast<double>(count));
    product.a = grid(engine, m * k, -8, 8, 0.25);
    std::vector<double> weights = grid(engine, k * n, -8, 8, 0.125);
    // Rows past the last group must not be multiplied.
    for (std::int64_t row = groups.sum; row < k; ++row) std::fill_n(weights.begin() + row * n, n, std::nan(""));
    product.weights = oracle::columns_of(weights, k, n);
    args.x = {inputs.put(dtype, {m, k}, product.a)};
    args.weight = {inputs.put(dtype, {k, n}, weights)};
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << args.x[0].describe() << " x "
                                    << args.weight[0].describe());
    expect_outputs(device(), args,
                   {{m == 0 ? std::vector<double>() : rounded(dtype, grouped_gemm_oracle(product).values), {}}});
    if (HasFatalFailure()) return;
  }
}

TEST_P(NpuMatmulTest, GroupedMatmulSaysWhatItRefuses) {
  Inputs inputs(device());
  npu::GroupedMatmulArgs good;
  good.x = {inputs.put(DType::f32, {4, 8}, std::vector<double>(32))};
  good.weight = {inputs.put(DType::f32, {2, 8, 3}, std::vector<double>(48))};
  good.group_list = inputs.put(DType::i64, {2}, {1, 4});
  good.split_item = 3, good.group_type = 0;
  const auto reason = [&](auto change) -> std::string {
    npu::GroupedMatmulArgs args = good;
    change(args);
    return refusal_of(args, device());
  };
  using Args = npu::GroupedMatmulArgs;
  using ::testing::HasSubstr;
  EXPECT_EQ(reason([](Args&) {}), "");
  EXPECT_THAT(reason([](Args& args) { args.split_item = 0; }), HasSubstr("lengths only the device knows"));
  EXPECT_THAT(reason([](Args& args) { args.split_item = 4; }), HasSubstr("split_item: 4 is not in [0, 3]"));
  EXPECT_THAT(reason([](Args& args) { args.group_type = 1; }), HasSubstr("group_type: 1 is none of -1, 0, 2"));
  EXPECT_THAT(reason([](Args& args) { args.group_list_type = 3; }), HasSubstr("group_list_type: 3"));
  EXPECT_THAT(reason([](Args& args) { args.group_list = {}; }), HasSubstr("group_list: is needed"));
  EXPECT_THAT(reason([](Args& args) { args.group_list.shape[0] = 1; }), HasSubstr("i64[1]"));
  EXPECT_THAT(reason([](Args& args) { args.scale_dtype = npu::CodeType::float8_e8m0fnu; }),
              HasSubstr("scale_dtype, per_token_scale_dtype: are for codes"));
  EXPECT_THAT(reason([](Args& args) { args.act_type = 3; }), HasSubstr("act_type: 3 is none of"));
  EXPECT_THAT(reason([](Args& args) { args.act_type = 1; }), HasSubstr("act_type: 1 needs per_token_scale"));
  EXPECT_THAT(reason([](Args& args) { args.x[0].shape[1] = 7; }),
              HasSubstr("weight: expected K = 7 as x has, got f32[2, 8, 3]"));
  EXPECT_THAT(reason([](Args& args) { args.x[0].dtype = DType::f8_e4m3; }),
              HasSubstr("x: expected f32, f16, bf16 or i8"));
  EXPECT_THAT(reason([](Args& args) { args.x[0].dtype = DType::i8; }), HasSubstr("weight: expected i8 or int4 in i32"));
  EXPECT_THAT(reason([](Args& args) { args.weight[0].dtype = DType::i8; }), HasSubstr("antiquant_scale: expected for"));
  EXPECT_THAT(reason([](Args& args) { args.scale = args.weight; }), HasSubstr("scale: is not for float x"));
  EXPECT_THAT(reason([](Args& args) { args.bias = args.x; }), HasSubstr("bias: expected [2, 3]"));
  EXPECT_THAT(reason([](Args& args) { args.output_dtype = DType::i8; }),
              HasSubstr("output_dtype: expected f32, f16 or bf16, got i8"));
  EXPECT_THAT(reason([](Args& args) { args.x.push_back(args.x[0]); }),
              HasSubstr("weight: expected 2 tensors as x, got 1"));
  EXPECT_THAT(reason([](Args& args) { args.group_type = 2; }), HasSubstr("group_type: 2 takes one float x and weight"));
}

}  // namespace
}  // namespace moecl::test
