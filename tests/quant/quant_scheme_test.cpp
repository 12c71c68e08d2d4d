#include <moecl/quant_scheme.hpp>

#include <gtest/gtest.h>

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
  EXPECT_EQ(scheme.activations.dtype, DType::i8);
  EXPECT_EQ(scheme.weights.dtype, DType::i8);
  EXPECT_EQ(scale_shape(scheme.activations, 33, 96), (Shape{33, 1}));
  EXPECT_EQ(batched_scale_shape(scheme.activations, 8, 33, 96), (Shape{8, 33, 1}));
  EXPECT_EQ(batched_scale_shape(scheme.weights, 8, 160, 96), (Shape{8, 160, 1}));
  EXPECT_EQ(scale_shape(scheme.activations, 0, 96), (Shape{0, 1}));
}

// The table of vLLM's fp8_w8a8: scales of w1 [E, 2N, K], and of activations [M, K].
TEST(QuantSchemeTest, EveryGranularityHasTheShapeOfTheFieldsTable) {
  const auto with = [](ScaleGroup group) { return OperandQuant{DType::f8_e4m3, group}; };
  EXPECT_EQ(batched_scale_shape(with(ScaleGroup::per_tensor()), 8, 384, 200), (Shape{8, 1, 1}));
  EXPECT_EQ(batched_scale_shape(with(ScaleGroup::per_channel()), 8, 384, 200), (Shape{8, 384, 1}));
  EXPECT_EQ(batched_scale_shape(with(ScaleGroup::per_block(128, 128)), 8, 385, 200), (Shape{8, 4, 2}));
  EXPECT_EQ(scale_shape(with(ScaleGroup::per_tensor()), 33, 200), (Shape{1, 1}));
  EXPECT_EQ(scale_shape(with(ScaleGroup::per_token()), 33, 200), (Shape{33, 1}));
  EXPECT_EQ(scale_shape(with(ScaleGroup::per_group(128)), 33, 200), (Shape{33, 2}));
  EXPECT_EQ(scale_shape(with(ScaleGroup::per_group(128)), 33, 256), (Shape{33, 2}));
}

}  // namespace
}  // namespace moecl::test
