#include <moecl/bf16.hpp>
#include <moecl/error.hpp>
#include <moecl/f16.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/devices.hpp"
#include "tests/host/files.hpp"
#include "tests/oracle/edge_cases.hpp"

namespace moecl::test {
namespace {

class GatherRowsTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(GatherRowsTest);

TEST_P(GatherRowsTest, CopiesRowsByIndexInEveryStorageType) {
  for (const DType from : {DType::f32, DType::f16, DType::bf16}) {
    for (const DType to : {DType::f32, DType::f16, DType::bf16}) {
      for (const std::int64_t hidden : {1, 16, 33, 257}) {
        SCOPED_TRACE(testing::Message() << name(from) << " to " << name(to) << ", H = " << hidden);
        const std::vector<double> source = normal(static_cast<std::size_t>(5 * hidden), 1);
        const std::vector<double> index = {9, 0, 3, 3, 8, 1, 6};
        const GuardedTensor x = upload(device(), from, {5, hidden}, source);
        const GuardedTensor slots = upload(device(), DType::i32, {7}, index);
        GuardedTensor out(device(), to, {7, hidden});
        gather_rows::enqueue(device().stream, {x, slots, 2, {}, 0, out});
        const std::vector<double> stored = rounded(from, source);
        std::vector<double> expected;
        for (const double slot : index)
          for (std::int64_t h = 0; h < hidden; ++h)
            expected.push_back(stored[static_cast<std::size_t>(static_cast<int>(slot) / 2 * hidden + h)]);
        EXPECT_EQ(out.values(), rounded(to, expected));
      }
    }
  }
}

TEST_P(GatherRowsTest, EveryWidthAndRowCount) {
  for (const std::int64_t hidden : widths)
    for (const std::int64_t rows : row_counts) {
      std::vector<std::int8_t> source(static_cast<std::size_t>((rows + 1) * hidden)), expected;
      for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::int8_t>(i * 37 % 256);
      std::vector<std::int32_t> index(static_cast<std::size_t>(rows));
      for (std::int64_t r = 0; r < rows; ++r) {
        index[static_cast<std::size_t>(r)] = static_cast<std::int32_t>((r * 7 + 1) % (rows + 1));
        const auto from = source.begin() + index[static_cast<std::size_t>(r)] * hidden;
        expected.insert(expected.end(), from, from + hidden);
      }
      const GuardedTensor x(device(), DType::i8, {rows + 1, hidden}, source),
          slots(device(), DType::i32, {rows}, index);
      for (const std::int32_t lanes : lane_choices) {
        const GuardedTensor out(device(), DType::i8, {rows, hidden});
        gather_rows::enqueue(device().stream, {x, slots, 1, {}, 0, out}, {lanes});
        EXPECT_EQ(out.read<std::int8_t>(), expected) << rows << " x " << hidden << ", lanes = " << lanes;
      }
    }
}

TEST_P(GatherRowsTest, RowsPastTheValidOnesAndIndicesOutOfRangeAreUntouched) {
  for (const ValidRows& rows : valid_rows()) {
    const auto count = static_cast<std::int64_t>(rows.valid.size());
    std::vector<std::int32_t> index(rows.valid.size());
    std::vector<double> expected(rows.valid.size() * 17, 77);
    const std::vector<double> source = rounded(DType::f32, normal(3 * 17, 2));
    for (std::size_t r = 0; r < index.size(); ++r) {
      // Entries of rows that are not valid may be anything; 6 and -1 are no slots of 3 rows shared by 2.
      index[r] = rows.valid[r] ? static_cast<std::int32_t>(r % 8) - 1 : -1234567;
      if (index[r] < 0 || index[r] >= 6) continue;
      std::copy_n(source.begin() + index[r] / 2 * 17, 17, expected.begin() + static_cast<std::ptrdiff_t>(r * 17));
    }
    const GuardedTensor x = upload(device(), DType::f32, {3, 17}, source), slots(device(), DType::i32, {count}, index);
    const GuardedTensor row_ends(device(), DType::i32, {static_cast<std::int64_t>(rows.row_ends.size())},
                                 rows.row_ends);
    for (const std::int32_t lanes : lane_choices) {
      const GuardedTensor out(device(), DType::f32, {count, 17}, std::vector<float>(expected.size(), 77.0F));
      gather_rows::enqueue(device().stream, {x, slots, 2, row_ends, rows.rows_per_expert, out}, {lanes});
      EXPECT_EQ(out.values(), expected) << count << " rows, " << rows.rows_per_expert << " each, lanes = " << lanes;
    }
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
  const auto reason = [&](const gather_rows::Args& args) { return gather_rows::reject(args, {}, device().caps()); };
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
