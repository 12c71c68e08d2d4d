#include <moecl/quant_scheme.hpp>

#include <gmock/gmock.h>

#include <set>

namespace moecl::test {
namespace {

using Shape = std::vector<std::int64_t>;

TEST(QuantSchemeTest, UnquantizedHasNoScales) {
  const QuantScheme scheme = QuantScheme::none();
  EXPECT_FALSE(scheme.activations.quantized());
  EXPECT_FALSE(scheme.weights.quantized());
  EXPECT_EQ(scale_shape(scheme.activations, 33, 96), Shape());
  EXPECT_EQ(batched_scale_shape(scheme.weights, 8, 160, 96), Shape());
}

TEST(QuantSchemeTest, Int8HasAScaleForEachTokenAndEachOutputChannel) {
  const QuantScheme scheme = QuantScheme::int8_w8a8();
  EXPECT_EQ(scheme.activations.type, CodeType::i8);
  EXPECT_EQ(scheme.weights.type, CodeType::i8);
  EXPECT_EQ(scale_shape(scheme.activations, 33, 96), (Shape{33, 1}));
  EXPECT_EQ(batched_scale_shape(scheme.activations, 8, 33, 96), (Shape{8, 33, 1}));
  EXPECT_EQ(batched_scale_shape(scheme.weights, 8, 160, 96), (Shape{8, 160, 1}));
  EXPECT_EQ(scale_shape(scheme.activations, 0, 96), (Shape{0, 1}));
}

// The table of vLLM's fp8_w8a8: scales of w1 [E, 2N, K], and of activations [M, K].
TEST(QuantSchemeTest, EveryGranularityHasTheShapeOfTheFieldsTable) {
  const auto with = [](ScaleGroup group) { return OperandQuant{CodeType::f8_e4m3, group}; };
  EXPECT_EQ(batched_scale_shape(with(ScaleGroup::per_tensor()), 8, 384, 200), (Shape{8, 1, 1}));
  EXPECT_EQ(batched_scale_shape(with(ScaleGroup::per_channel()), 8, 384, 200), (Shape{8, 384, 1}));
  EXPECT_EQ(batched_scale_shape(with(ScaleGroup::per_block(128, 128)), 8, 385, 200), (Shape{8, 4, 2}));
  EXPECT_EQ(scale_shape(with(ScaleGroup::per_tensor()), 33, 200), (Shape{1, 1}));
  EXPECT_EQ(scale_shape(with(ScaleGroup::per_token()), 33, 200), (Shape{33, 1}));
  EXPECT_EQ(scale_shape(with(ScaleGroup::per_group(128)), 33, 200), (Shape{33, 2}));
  EXPECT_EQ(scale_shape(with(ScaleGroup::per_group(128)), 33, 256), (Shape{33, 2}));
}

TEST(QuantSchemeTest, EverySchemeHasANameOfItsOwnAndIsPossible) {
  std::set<std::string> texts;
  for (const auto& [name, scheme] : named_schemes()) {
    EXPECT_EQ(reject(scheme), "") << name;
    EXPECT_TRUE(texts.insert(describe(scheme)).second) << name;
    ASSERT_TRUE(scheme_named(name).has_value()) << name;
    EXPECT_EQ(describe(*scheme_named(name)), describe(scheme)) << name;
  }
  EXPECT_FALSE(scheme_named("int3_w3a3").has_value());
  EXPECT_EQ(reject(QuantScheme::none()), "");
  EXPECT_EQ(describe(QuantScheme::fp8_w8a8_block()),
            "weights f8_e4m3 in blocks of 128 x 128, activations f8_e4m3 in groups of 128");
  EXPECT_EQ(describe(QuantScheme::int4_w4a16(32, true)),
            "weights u4 in groups of 32 with zero points, activations plain");
}

TEST(QuantSchemeTest, ImpossibleCombinationsAreRefusedWithTheReason) {
  const OperandQuant fp8_block = QuantScheme::fp8_w8a8_block().weights;
  const OperandQuant int8_token = {CodeType::i8, ScaleGroup::per_token()};
  const OperandQuant fp8_token = {CodeType::f8_e4m3, ScaleGroup::per_token()};
  OperandQuant zeros = fp8_token, still = fp8_token, zero_of_all = {CodeType::i8, ScaleGroup::per_tensor()};
  zeros.zero_points = zero_of_all.zero_points = true;
  still.static_scale = true;
  OperandQuant rounded_i8 = QuantScheme::nvfp4(), limited_mx = QuantScheme::mx(CodeType::f8_e4m3), even = fp8_token,
               of_all = {CodeType::f8_e4m3, ScaleGroup::per_tensor()}, nothing = fp8_token;
  rounded_i8.rounding = of_all.rounding = ScaleRounding::ratio_up;
  limited_mx.most_amax = 1;
  even.rounding = ScaleRounding::amax_even;
  nothing.most_amax = 0;
  const std::pair<QuantScheme, const char*> cases[] = {
      {{rounded_i8, QuantScheme::nvfp4()}, "come from the largest magnitude alone"},
      {{limited_mx, QuantScheme::mx(CodeType::f4_e2m1)}, "limits are of real scales"},
      {{even, fp8_token}, "real scales of single rows or blocks are rounded"},
      {{of_all, fp8_token}, "real scales of single rows or blocks are rounded"},
      {{nothing, fp8_token}, "amax at most 0"},
      {{int8_token, {}}, "quantized activations need quantized weights"},
      {{{}, {CodeType::i8, ScaleGroup::per_group(0)}}, "weights: a group of 1 x 0"},
      {{{}, {CodeType::bf16, ScaleGroup::per_channel()}}, "bf16 is not a quantized type"},
      {{{}, zeros}, "f8_e4m3 codes have no zero points"},
      {{{}, {CodeType::f4_e2m1, ScaleGroup::per_group(16), ScaleFormat::e8m0}}, "in groups of 32, got f4_e2m1"},
      {{{}, {CodeType::i8, ScaleGroup::per_group(32), ScaleFormat::e8m0}}, "floating-point codes"},
      {{{}, {CodeType::f4_e2m1, ScaleGroup::per_group(32), ScaleFormat::e4m3}}, "in groups of 16"},
      {{{}, {CodeType::f6_e2m3, ScaleGroup::per_group(32)}}, "f6_e2m3 codes need e8m0 or e4m3 scales"},
      {{{}, still}, "a static scale is one of activations"},
      {{zero_of_all, int8_token}, "come with each token's scale, got i8 per tensor with zero points"},
      {{still, fp8_token}, "static scales of activations are per tensor"},
      {{fp8_token, fp8_block}, "weights in blocks of 128 x 128 need activations in groups of 128, got f8_e4m3 per row"},
      {{int8_token, QuantScheme::fp8_w8a8().weights}, "i8 activations with f8_e4m3 weights"},
      {{QuantScheme::mx(CodeType::f4_e2m1), QuantScheme::mx(CodeType::f8_e4m3)}, "narrower"},
      {{{CodeType::i8, {4, 32}}, {CodeType::i8, ScaleGroup::per_channel()}}, "4 rows together"},
      {{{CodeType::i8, {-1, 1}}, {CodeType::i8, ScaleGroup::per_channel()}}, "for each column"},
  };
  for (const auto& [scheme, message] : cases) EXPECT_THAT(reject(scheme), testing::HasSubstr(message));
}

}  // namespace
}  // namespace moecl::test
