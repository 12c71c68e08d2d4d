#include "tests/cases/gather_rows.hpp"

#include <moecl/bf16.hpp>
#include <moecl/error.hpp>
#include <moecl/f16.hpp>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "tests/host/files.hpp"
#include "tests/kernels_cl/operator_test.hpp"

namespace moecl::test {
namespace {

class GatherRowsTest : public OperatorTest<GatherRowsCase> {};
MOECL_ON_EVERY_DEVICE(GatherRowsTest);

TEST_P(GatherRowsTest, CopiesRowsByIndexInEveryStorageType) {
  for (const DType from : {DType::f32, DType::f16, DType::bf16})
    for (const DType to : {DType::f32, DType::f16, DType::bf16})
      for (const std::int64_t hidden : {1, 16, 33, 257})
        check({hidden, from, to, normal(static_cast<std::size_t>(5 * hidden), 1), {9, 0, 3, 3, 8, 1, 6}, 2}, {0});
}

TEST_P(GatherRowsTest, EveryWidthAndRowCount) {
  for (const std::int64_t hidden : widths)
    for (const std::int64_t rows : row_counts) {
      GatherRowsCase of{hidden, DType::i8, DType::i8};
      for (std::int64_t i = 0; i < (rows + 1) * hidden; ++i) of.x.push_back(static_cast<double>(i * 37 % 256 - 128));
      for (std::int64_t r = 0; r < rows; ++r) of.index.push_back(static_cast<std::int32_t>((r * 7 + 1) % (rows + 1)));
      check(of);
    }
}

TEST_P(GatherRowsTest, RowsPastTheValidOnesAndIndicesOutOfRangeAreUntouched) {
  for (const ValidRows& rows : valid_rows()) {
    GatherRowsCase of{17, DType::f32, DType::f32, normal(3 * 17, 2), {}, 2, rows};
    // Entries of invalid rows may be anything. Two slots share each of the 3 rows, so 6 and -1 are no slots.
    for (std::size_t r = 0; r < rows.valid.size(); ++r)
      of.index.push_back(rows.valid[r] ? static_cast<std::int32_t>(r % 8) - 1 : -1234567);
    check(of);
  }
}

TEST_P(GatherRowsTest, ConvertsToAndFrom16BitsAsTheGoldenConversions) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const SafetensorsFile file =
        SafetensorsFile::open(data_path(std::string("formats/convert_") + name(dtype) + ".safetensors"));
    const HostTensor golden_inputs = file.tensor("input_bits"), golden_codes = file.tensor("code");
    const std::int64_t count = golden_inputs.elements();
    std::vector<float> inputs(static_cast<std::size_t>(count));
    std::vector<std::uint16_t> codes(inputs.size());
    golden_inputs.data.read(inputs.data(), golden_inputs.size_bytes);
    golden_codes.data.read(codes.data(), golden_codes.size_bytes);
    const GuardedTensor x(device(), DType::f32, {1, count}, inputs),
        index(device(), DType::i32, {1}, std::vector<std::int32_t>{0});
    const GuardedTensor stored(device(), dtype, {1, count}), back(device(), DType::f32, {1, count});
    gather_rows::enqueue(device().stream, {x, index, 1, {}, 0, stored});
    gather_rows::enqueue(device().stream, {stored, index, 1, {}, 0, back});
    const auto stored_codes = stored.read<std::uint16_t>();
    const auto values = back.read<float>();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const float expected = dtype == DType::bf16 ? bf16_to_f32(codes[i]) : f16_to_f32(codes[i]);
      if (std::isnan(inputs[i])) {
        ASSERT_TRUE(std::isnan(values[i])) << name(dtype) << " of " << inputs[i];
      } else {
        ASSERT_EQ(stored_codes[i], codes[i]) << name(dtype) << " of " << inputs[i];
        ASSERT_EQ(values[i], expected) << name(dtype) << " of " << inputs[i];
      }
    }
  }
}

TEST_P(GatherRowsTest, RejectsWrongShapes) {
  const GuardedTensor x(device(), DType::f32, {3, 5}), q(device(), DType::i8, {4, 5}), index(device(), DType::i32, {4});
  const GuardedTensor out(device(), DType::f32, {4, 5}), narrow(device(), DType::f32, {4, 4});
  const auto reason = [&](const gather_rows::Args& args) { return gather_rows::reject(args, {}, device().record()); };
  EXPECT_EQ(reason({x, index, 1, {}, 0, out}), "");
  EXPECT_THAT(reason({index, index, 1, {}, 0, out}), testing::HasSubstr("float or i8 [N, H], got i32[4]"));
  EXPECT_THAT(reason({x, x, 1, {}, 0, out}), testing::HasSubstr("expected i32[R], got f32[3, 5]"));
  EXPECT_THAT(reason({x, index, 1, {}, 0, narrow}), testing::HasSubstr("expected [4, 5]"));
  EXPECT_THAT(reason({x, index, 1, {}, 0, q}), testing::HasSubstr("f32 converts to, got i8[4, 5]"));
  EXPECT_THAT(reason({x, index, 0, {}, 0, out}), testing::HasSubstr("0 is not positive"));
  EXPECT_THAT(reason({x, index, 1, index, 3, out}), testing::HasSubstr("3 x 4 experts does not give 4 rows"));
  EXPECT_THROW(gather_rows::enqueue(device().stream, {x, index, 0, {}, 0, out}), Error);
}

}  // namespace
}  // namespace moecl::test
