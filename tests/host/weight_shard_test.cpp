#include "host/layer/weight_shard.hpp"

#include <gmock/gmock.h>

#include <cstring>

#include "tests/host/files.hpp"
#include "tests/oracle/weight_matrix.hpp"

namespace moecl::test {
namespace {

using testing::HasSubstr;

constexpr std::int64_t N = 48, K = 96;

/// A quantized matrix of counting numbers in one of the packings, with its memory.
struct Example {
  std::vector<std::uint8_t> codes, zeros;
  std::vector<float> scales;
  WeightMatrix matrix;

  Example(CodeType type, std::int32_t unit_bytes, std::int32_t unit_codes, bool along_rows, bool transposed,
          ScaleGroup group, bool with_zeros, bool act_order)
      : codes(static_cast<std::size_t>(N * K * unit_bytes / unit_codes)) {
    for (std::size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<std::uint8_t>((i * 37 + i / 7) & 0x77);  // no NaN
    CodeMatrix& c = matrix.codes;
    c.data = codes.data();
    c.type = type;
    c.rows = N;
    c.columns = K;
    c.unit_bytes = unit_bytes;
    c.unit_codes = unit_codes;
    c.packed_along_rows = along_rows;
    c.interleaved = along_rows;
    c.row_stride = transposed ? 1 : along_rows ? K : K / unit_codes;
    c.column_stride = transposed ? (along_rows ? N / unit_codes : N) : 1;
    matrix.group = group;
    const std::int64_t rows = group.rows == ScaleGroup::whole ? 1 : (N + group.rows - 1) / group.rows;
    const std::int64_t columns = group.columns == ScaleGroup::whole ? 1 : (K + group.columns - 1) / group.columns;
    for (std::int64_t i = 0; i < rows * columns; ++i) scales.push_back(1 + static_cast<float>(i) / 8);
    matrix.scale = HostMatrix(scales.data(), DType::f32, rows, columns);
    if (with_zeros) {
      zeros.assign(static_cast<std::size_t>(rows * columns), 0);
      for (std::size_t i = 0; i < zeros.size(); ++i) zeros[i] = static_cast<std::uint8_t>(i * 91);
      matrix.zero = matrix.codes;
      matrix.zero.data = zeros.data();
      matrix.zero.rows = rows;
      matrix.zero.columns = columns;
      matrix.zero.row_stride = transposed ? 1 : columns;
      matrix.zero.column_stride = transposed ? rows / unit_codes : 1;
      matrix.zero.packed_along_rows = true;
    }
    if (!act_order) return;
    for (std::int64_t k = 0; k < K; ++k) matrix.group_index.push_back(static_cast<std::int32_t>(k * 5 % columns));
  }
};

struct Case {
  const char* what;
  Example example;
  std::int64_t row_step, column_step;  ///< parts may begin at multiples of these
};

std::vector<Case> cases() {
  std::vector<Case> result;
  result.push_back(
      {"per tensor", {CodeType::f8_e4m3, 1, 1, false, false, ScaleGroup::per_tensor(), false, false}, 1, 1});
  result.push_back({"per channel", {CodeType::i8, 1, 1, false, false, ScaleGroup::per_channel(), false, false}, 1, 1});
  result.push_back(
      {"blocks", {CodeType::f8_e4m3, 1, 1, false, true, ScaleGroup::per_block(16, 32), false, false}, 16, 32});
  result.push_back(
      {"fp4 in bytes", {CodeType::f4_e2m1, 1, 2, false, false, ScaleGroup::per_group(16), false, false}, 1, 16});
  result.push_back(
      {"fp6 in bytes", {CodeType::f6_e2m3, 3, 4, false, false, ScaleGroup::per_group(32), false, false}, 1, 32});
  result.push_back(
      {"words along K", {CodeType::u4, 4, 8, false, false, ScaleGroup::per_group(24), false, false}, 1, 24});
  result.push_back(
      {"units split by a part", {CodeType::u4, 4, 8, false, false, ScaleGroup::per_channel(), false, false}, 1, 1});
  result.push_back({"GPTQ", {CodeType::u4, 4, 8, false, true, ScaleGroup::per_group(32), true, false}, 1, 32});
  result.push_back({"AWQ", {CodeType::u4, 4, 8, true, true, ScaleGroup::per_group(32), true, false}, 1, 32});
  result.push_back({"act-order", {CodeType::u4, 4, 8, false, true, ScaleGroup::per_group(32), true, true}, 1, 1});
  return result;
}

TEST(WeightShardTest, APartHasTheElementsOfTheWhole) {
  for (const Case& of : cases()) {
    SCOPED_TRACE(of.what);
    const WeightMatrix& whole = of.example.matrix;
    for (const Share part :
         {Share{0, N}, Share{of.row_step, 2 * of.row_step}, Share{2 * of.row_step, N - 2 * of.row_step}}) {
      const WeightMatrix rows = rows_of(whole, part);
      ASSERT_EQ(rows.rows(), part.count);
      for (std::int64_t n = 0; n < part.count; ++n)
        for (std::int64_t k = 0; k < K; ++k)
          ASSERT_EQ(weight_element(rows, n, k), weight_element(whole, part.begin + n, k)) << n << ", " << k;
    }
    for (const Share part :
         {Share{0, K}, Share{of.column_step, of.column_step}, Share{2 * of.column_step, K - 2 * of.column_step}}) {
      const WeightMatrix columns = columns_of(whole, part);
      ASSERT_EQ(columns.columns(), part.count);
      for (std::int64_t n = 0; n < N; ++n)
        for (std::int64_t k = 0; k < part.count; ++k)
          ASSERT_EQ(weight_element(columns, n, k), weight_element(whole, n, part.begin + k)) << n << ", " << k;
      // A part of a part.
      const Share half = {0, of.column_step};
      ASSERT_EQ(weight_element(columns_of(rows_of(columns, {of.row_step, of.row_step}), half), 0, 0),
                weight_element(whole, of.row_step, part.begin));
    }
  }
}

TEST(WeightShardTest, AGroupIsNotSplit) {
  const Example blocks(CodeType::f8_e4m3, 1, 1, false, false, ScaleGroup::per_block(16, 64), false, false);
  EXPECT_THAT(error_of([&] {
                rows_of(blocks.matrix, {24, 24});
              }).what(),
              HasSubstr("rows [24, 48) of 48 split a group of 16 that shares a scale"));
  EXPECT_THAT(error_of([&] {
                columns_of(blocks.matrix, {0, 48});
              }).what(),
              HasSubstr("columns [0, 48) of 96 split a group of 64 that shares a scale"));
  EXPECT_EQ(columns_of(blocks.matrix, {64, 32}).scale.columns, 1);  // the last group may be shorter
  EXPECT_THAT(error_of([&] {
                rows_of(blocks.matrix, {32, 32});
              }).what(),
              HasSubstr("[32, 64) of a matrix that has 48"));
}

TEST(WeightShardTest, TheUnitOfPartsIsWhatSharesScales) {
  const auto matrix = [](ScaleGroup group) {
    return Example(CodeType::f8_e4m3, 1, 1, false, false, group, false, false).matrix;
  };
  const auto unit_of = [](const WeightMatrix& gate, const WeightMatrix& up, const WeightMatrix& down) {
    ExpertMatrices expert;
    expert.gate = gate, expert.up = up, expert.down = down;
    return intermediate_unit(expert);
  };
  const WeightMatrix channel = matrix(ScaleGroup::per_channel());
  EXPECT_EQ(unit_of(channel, channel, channel), 1);
  EXPECT_EQ(unit_of(matrix({16, 32}), matrix({16, 32}), matrix({16, 24})), 48);
  EXPECT_EQ(unit_of(channel, channel, matrix(ScaleGroup::per_group(32))), 32);
  const Example act_order(CodeType::u4, 4, 8, false, true, ScaleGroup::per_group(32), true, true);
  EXPECT_EQ(unit_of(channel, channel, act_order.matrix), 1);
  EXPECT_EQ(intermediate_unit({}), 1);
}

}  // namespace
}  // namespace moecl::test
