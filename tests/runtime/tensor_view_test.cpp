#include <moecl/tensor_view.hpp>

#include <gmock/gmock.h>

#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using ::testing::HasSubstr;

constexpr BufferView memory(std::uint64_t size_bytes) { return {nullptr, 0, size_bytes}; }

TEST(TensorViewTest, KnowsItsShape) {
  const TensorView view(memory(48), DType::bf16, {2, 3, 4});
  EXPECT_EQ(view.describe(), "bf16[2, 3, 4]");
  EXPECT_EQ(view.elements(), 24);
  EXPECT_EQ(view.size_bytes(), 48u);
  EXPECT_TRUE(view.contiguous());
  EXPECT_TRUE(TensorView(BufferView(), DType::f32, {2, 0, 3}).contiguous());
  EXPECT_EQ(view.stride[0], 12);
  EXPECT_FALSE(TensorView().present());
  EXPECT_EQ(TensorView().describe(), "absent");
  EXPECT_EQ(TensorView(memory(0), DType::f32, {0, 7}).elements(), 0);
}

TEST(TensorViewTest, RefusesShapesItsMemoryCannotHold) {
  EXPECT_THAT(error_of([] {
                TensorView(memory(95), DType::f32, {4, 6});
              }).what(),
              HasSubstr("needs 24 elements, its memory has 95 bytes"));
  EXPECT_THAT(error_of([] { TensorView(memory(95), DType::f32, {4, -6}); }).what(), HasSubstr("negative"));
  const std::int64_t huge = std::int64_t{1} << 32;
  EXPECT_THAT(error_of([&] { TensorView(memory(95), DType::i8, {huge, huge}); }).what(), HasSubstr("overflows"));
  // 2^62 elements of 8 bytes wrap to 0 bytes in 64 bits.
  EXPECT_THAT(error_of([&] {
                TensorView(memory(95), DType::i64, {huge, huge / 4});
              }).what(),
              HasSubstr("its memory has 95"));
  EXPECT_THAT(error_of([] { TensorView(memory(95), DType::i8, {1, 1, 1, 1, 1}); }).what(), HasSubstr("rank 5"));
}

TEST(TensorViewTest, TakesRows) {
  const TensorView rows = TensorView(memory(96), DType::f32, {4, 6}).rows(1, 2);
  EXPECT_EQ(rows.describe(), "f32[2, 6]");
  EXPECT_EQ(rows.offset_elements(), 6u);
  EXPECT_EQ(rows.rows(2, 0).elements(), 0);
  EXPECT_THAT(error_of([&] { rows.rows(1, 2); }).what(), HasSubstr("[1, 1 + 2) leave f32[2, 6]"));
  EXPECT_EQ(error_of([&] { rows.rows(-1, 1); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { rows.rows(1, std::numeric_limits<std::int64_t>::max()); }).code(),
            ErrorCode::invalid_argument);
}

TEST(TensorViewTest, RefusesOffsetsBetweenElements) {
  const TensorView view(memory(16).slice(2, 8), DType::f32, {2});
  EXPECT_THAT(error_of([&] { view.offset_elements(); }).what(), HasSubstr("byte offset 2 is no multiple of f32's 4"));
}

TEST(TensorViewTest, ComparesEveryExtentBesideTheFreeOnes) {
  const TensorView view(memory(96), DType::f32, {4, 6});
  expect_tensor(view, "x", DType::f32, {4, 6});
  expect_tensor(view, "x", DType::f32, {-1, 6});
  expect_tensor(view, "x", DType::f32, {4, -1});
  EXPECT_THAT(error_of([&] {
                expect_tensor(view, "x", DType::f32, {-1, 4});
              }).what(),
              HasSubstr("x: expected f32[-1, 4], got f32[4, 6]"));
  EXPECT_EQ(error_of([&] { expect_tensor(view, "x", DType::f16, {4, 6}); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { expect_tensor(view, "x", DType::f32, {4, 6, 1}); }).code(), ErrorCode::invalid_argument);
}

TEST(DTypeTest, NamesAndSizesAreOneToOne) {
  const std::pair<const char*, std::size_t> sizes[] = {{"f64", 8}, {"f32", 4}, {"f16", 2}, {"bf16", 2},
                                                       {"i64", 8}, {"i32", 4}, {"i8", 1},  {"bool", 1}};
  for (const auto& [text, size] : sizes) {
    const auto dtype = dtype_from_name(text);
    ASSERT_TRUE(dtype.has_value()) << text;
    EXPECT_STREQ(name(*dtype), text);
    EXPECT_EQ(size_bytes(*dtype), size) << text;
  }
  EXPECT_EQ(dtype_from_name("F32"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

}  // namespace
}  // namespace moecl::test
