#include "tests/cases/grouped_gemm.hpp"

#include <moecl/error.hpp>
#include <moecl/grouped_gemm.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels_cl/grouped_gemm_operands.hpp"

namespace moecl::test {
namespace {

class GroupedGemmTest : public OnEveryDevice {
 protected:
  void check(const GroupedGemmCase& shape, bool only_selected = false) const {
    check_product(device(), shape, make_product(shape, 7), only_selected);
  }
};
MOECL_ON_EVERY_DEVICE(GroupedGemmTest);

TEST_P(GroupedGemmTest, TakesEveryNumberOfRowsAndOddMatrices) {
  for (const std::int64_t rows : {0, 1, 2, 3, 4, 5, 6, 7, 65, 97}) check({{rows}, 65, 33});
  for (const auto& [n, k] : {std::pair{1, 1}, {17, 257}, {63, 65}, {129, 17}, {257, 129}, {64, 530}}) {
    check({{1}, n, k});
    check({{97, 9}, n, k});
  }
}

TEST_P(GroupedGemmTest, KeepsLaunchesOfTwoQueuesApart) {
  for (const DType type : {DType::bf16, DType::i8}) {
    const GroupedGemmCase shape{{150, 0, 97}, 256, 208, type, type, DType::f32};
    const GroupedProduct products[] = {make_product(shape, 3), make_product(shape, 4)};
    int ran = 0;
    for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
      SCOPED_TRACE(testing::Message() << variant.name << ": " << shape.describe());
      Operands first(device(), shape, products[0]), second(device(), shape, products[1]);
      const auto of_first = first.fitting(variant.name), of_second = second.fitting(variant.name);
      if (!of_first || !of_second) continue;
      device().stream.finish();
      Stream other(*device().context);
      for (int i = 0; i < 16; ++i) {
        grouped_gemm::enqueue(device().stream, *of_first, {variant.name});
        grouped_gemm::enqueue(other, *of_second, {variant.name});
      }
      other.finish();
      EXPECT_LE(grouped_gemm_error(shape, products[0], first.out()), 1);
      EXPECT_LE(grouped_gemm_error(shape, products[1], second.out()), 1);
      ++ran;
    }
    EXPECT_GT(ran, 0) << "no variant runs here";
  }
}

TEST_P(GroupedGemmTest, TakesEmptyExpertsAndSkewedRouting) {
  check({{0, 0, 5, 0, 13, 0}, 33, 40});
  check({{0, 0, 203, 0}, 33, 40});
  check({{0, 0, 0}, 33, 40});
  std::vector<std::int64_t> many(64);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int64_t>(i * 7 % 5);
  check({many, 70, 17});
}

TEST_P(GroupedGemmTest, TakesEveryStorageType) {
  std::size_t next = 0;
  const DType types[] = {DType::f32, DType::f16, DType::bf16};
  for (const DType a : types)
    for (const DType weights : types)
      check({{3, 0, 8}, 67, 35, a, weights, types[next++ % 3], 0, 0, 0, true}, a != weights);
  for (const DType out : types) check({{3, 0, 8}, 67, 35, DType::i8, DType::i8, out, 0, 0, 0, true}, out != DType::f32);
}

TEST_P(GroupedGemmTest, TakesTheTilesOfTensorCores) {
  // Numbers of rows lie around tiles of 16, 64, 144 and 160, exceed 16 such tiles, and take every eighth height up to
  // them. Columns lie around two and four panels, K around 64 and beyond all stages. Rows start at 16 bytes or not.
  for (const DType type : {DType::bf16, DType::f16}) {
    const bool is_bf16 = type == DType::bf16;
    for (const std::int64_t k : {8, 64, 72, 69, 584}) {
      check({{17, 0, 145, 1}, 70, k, type, type, DType::f32, 0, 3, 0, is_bf16});
      check({{63, 5}, is_bf16 ? 257 : 128, k, type, type, type, 0, 9, 3, !is_bf16});
    }
    check({{5, 0, 13, 8}, 130, 136, type, type, DType::f32, 13, 0, 2, true});
  }
  check({{2570, 40}, 200, 40, DType::bf16, DType::bf16, DType::f32});
  std::vector<std::int64_t> heights(20);
  for (std::size_t i = 0; i < heights.size(); ++i) heights[i] = static_cast<std::int64_t>(i * 8 + i % 8 + 1);
  check({heights, 130, 72, DType::bf16, DType::bf16, DType::f16});
  check({heights, 70, 72, DType::f16, DType::f16, DType::f32, 0, 0, 2});
  std::vector<std::int64_t> many(70);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int64_t>(i * 7 % 40);
  check({many, 70, 24, DType::bf16, DType::bf16, DType::bf16});
}

// On a CPU with few cores a work-group takes several panels in turn, and the last work-group takes fewer.
TEST_P(GroupedGemmTest, MultipliesManyPanels) {
  std::vector<std::int64_t> rows(30);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i * 7 % 40);
  for (const DType type : {DType::bf16, DType::i8}) check({rows, 650, 36, type, type, DType::f32, 0, 0, 2, true});
}

TEST_P(GroupedGemmTest, SumsInt8Exactly) {
  // Sums of 1,400 products reach 2^24.5: more than f32 can hold exactly. Powers of two as scales keep the result exact.
  GroupedGemmCase shape{{2, 9}, 65, 1400, DType::i8, DType::i8, DType::f32};
  GroupedProduct product = make_product(shape, 3);
  for (double& value : product.a) value = value < 0 ? value : 127;
  for (double& value : product.weights) value = value < 0 ? value : 127;
  std::fill_n(product.a.begin(), shape.k, -128);
  std::fill_n(product.weights.begin(), shape.k, -128);
  product.a_scale.assign(product.a_scale.size(), 0.5);
  product.weight_scale.assign(product.weight_scale.size(), 0.25);
  std::vector<double> expected = grouped_gemm_oracle(product).values;
  expected = rounded(DType::f32, expected);
  for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
    Operands operands(device(), shape, product);
    const auto args = operands.fitting(variant.name);
    if (!args) continue;
    grouped_gemm::enqueue(device().stream, *args, {variant.name});
    EXPECT_EQ(operands.out(), expected) << variant.name;
  }
}

TEST_P(GroupedGemmTest, ReadsPanelsOfWords) {
  const auto check_words = [&](GroupedGemmCase shape) {
    shape.layout = PanelLayout::k_words;
    check(shape);
  };
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 97}) check_words({{rows}, 65, 38, dtype, dtype, DType::f32});
    check_words({{3, 0, 9, 1}, 200, 530, dtype, dtype, DType::f32, 0, 2, 2, true});
  }
  check_words({{3, 0, 9, 70}, 67, 36, DType::f32, DType::bf16, DType::f32});
  check_words({{3, 0, 9, 1}, 67, 1044, DType::i8, DType::i8, DType::f32, 0, 2, 2, true});
}

TEST_P(GroupedGemmTest, GathersRowsByIndexAndLeavesInvalidRowsAlone) {
  check({{5, 0, 11}, 65, 33, DType::f32, DType::f32, DType::f32, 0, 9, 0});
  check({{5, 0, 11}, 65, 33, DType::f32, DType::f32, DType::f32, 0, 0, 4, true});
  check({{5, 0, 11}, 65, 33, DType::bf16, DType::bf16, DType::bf16, 0, 9, 3});
  check({{5, 0, 11}, 65, 33, DType::i8, DType::i8, DType::f32, 0, 9, 3, true});
}

TEST_P(GroupedGemmTest, TakesTheBatchedLayout) {
  check({{5, 0, 13, 8}, 65, 33, DType::f32, DType::f32, DType::f32, 13});
  check({{5, 0, 13, 8}, 65, 33, DType::i8, DType::i8, DType::bf16, 13, 0, 2, true});
  check({{98, 1}, 17, 65, DType::f32, DType::f32, DType::f32, 100});
}

TEST_P(GroupedGemmTest, LeavesRowsWithAnIndexOutOfRangeAlone) {
  const GroupedGemmCase shape{{9}, 65, 33, DType::f32, DType::f32, DType::f32, 0, 0, 2};
  GroupedProduct product = make_product(shape, 5);
  const std::size_t bad[] = {0, 4, 8};
  for (const std::size_t row : bad) product.index[row] = row == 4 ? -1 : 10;
  for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
    Operands operands(device(), shape, product);
    const auto args = operands.fitting(variant.name);
    if (!args) continue;
    grouped_gemm::enqueue(device().stream, *args, {variant.name});
    const std::vector<double> out = operands.out();
    for (std::size_t row = 0; row < 9; ++row)
      EXPECT_EQ(std::isnan(out[row * 65]), row % 4 == 0) << variant.name << ", row " << row;
  }
}

TEST_P(GroupedGemmTest, SplitsTheWeightsOverBuffers) {
  const GroupedGemmCase shape{{4, 7, 0, 2, 9}, 65, 33};
  for (const std::int64_t rows_per_expert : {0, 9}) {
    GroupedGemmCase split = shape;
    split.rows_per_expert = rows_per_expert;
    const GroupedProduct product = make_product(split, 11);
    for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
      Operands operands(device(), split, product);
      auto args = operands.fitting(variant.name);
      if (!args) continue;
      const PackedWeights all = args->weights;
      const std::uint64_t one = PackedWeights::size_bytes(all.type, 1, all.n, all.k);
      for (const auto& [first, count] : {std::pair{0, 2}, {2, 1}, {3, 2}}) {
        args->first_expert = first;
        args->weights = {all.buffer.slice(one * static_cast<unsigned>(first), one * static_cast<unsigned>(count)),
                         all.type, count, all.n, all.k};
        grouped_gemm::enqueue(device().stream, *args, {variant.name});
      }
      EXPECT_LE(grouped_gemm_error(split, product, operands.out()), 1)
          << variant.name << ", batched by " << rows_per_expert;
    }
  }
}

TEST_P(GroupedGemmTest, ARowDoesNotDependOnTheOthers) {
  // K exceeds a block of K, and there are enough rows for every tile size.
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const GroupedGemmCase many{{103}, 7, 531, dtype, dtype, DType::f32, 0, 0, 1};
    const GroupedProduct product = make_product(many, 13);
    for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
      Operands all(device(), many, product);
      const auto args = all.fitting(variant.name);
      if (!args) continue;
      if (dtype != DType::f32 && grouped_gemm::select(*args, {}, device().record()) != variant.name) continue;
      grouped_gemm::enqueue(device().stream, *args, {variant.name});
      const std::vector<double> together = all.out();
      for (const std::size_t row : {0, 5, 50, 102}) {
        GroupedProduct single = product;
        single.rows = 1, single.rows_of_expert = {1}, single.index = {product.index[row]};
        Operands one(device(), {{1}, 7, 531, dtype, dtype}, single);
        grouped_gemm::enqueue(device().stream, one.fitting(variant.name).value(), {variant.name});
        const auto begin = together.begin() + static_cast<std::ptrdiff_t>(row * 7);
        EXPECT_EQ(one.out(), std::vector<double>(begin, begin + 7)) << variant.name << ", row " << row;
      }
    }
  }
}

/// The choice on a device without a tuning table, on which every program builds.
std::string select_on(const DeviceCaps& caps, const grouped_gemm::Args& args, const grouped_gemm::Config& config = {}) {
  return grouped_gemm::select(args, config, Device{.caps = caps});
}

TEST(GroupedGemmSelectTest, FitsTheDeviceAndTheRowsOfAnExpert) {
  grouped_gemm::Args args;
  args.row_ends.rank = 1, args.row_ends.shape[0] = 8;
  DeviceCaps avx512, avx2, gpu, llvmpipe;
  avx512.type = avx2.type = llvmpipe.type = DeviceType::cpu, gpu.type = DeviceType::gpu;
  avx512.preferred_float_width = 16, avx2.preferred_float_width = 8;
  for (const std::int64_t rows : {8, 800}) {
    args.out.rank = 2, args.out.shape[0] = rows;
    EXPECT_EQ(select_on(avx512, args), "t0_tile");
    EXPECT_EQ(select_on(avx2, args), "t0_tile16");
    EXPECT_EQ(select_on(gpu, args), rows == 8 ? "t0_gemv" : "t0_local");
    EXPECT_EQ(select_on(llvmpipe, args), rows == 8 ? "t0_gemv" : "t0_local");
    EXPECT_EQ(select_on(gpu, args, {"", 100}), "t0_local");
    EXPECT_EQ(select_on(avx512, args, {"t0_local"}), "t0_local");
  }
}

TEST(GroupedGemmSelectTest, TakesDotProductsWhereTheProcessorHasThem) {
  grouped_gemm::Args args;
  args.out.rank = 2, args.out.shape[0] = 8;
  DeviceCaps zen4, skylake;
  zen4.type = skylake.type = DeviceType::cpu;
  zen4.preferred_float_width = skylake.preferred_float_width = 16;
  zen4.has_avx512 = skylake.has_avx512 = true;
  zen4.has_avx512_vnni = zen4.has_avx512_bf16 = true;
  const auto selected = [&](DType a, CodeType weights) {
    args.a.dtype = a, args.weights.type = weights;
    EXPECT_EQ(select_on(skylake, args), a == DType::i8 && args.a_zero_point == 0 ? "avx512" : "t0_tile");
    return select_on(zen4, args);
  };
  EXPECT_EQ(selected(DType::i8, CodeType::i8), "avx512_vnni");
  EXPECT_EQ(selected(DType::i8, CodeType::i4), "avx512_vnni");
  EXPECT_EQ(selected(DType::bf16, CodeType::bf16), "avx512_bf16");
  EXPECT_EQ(selected(DType::f32, CodeType::bf16), "t0_tile");
  EXPECT_EQ(selected(DType::bf16, CodeType::i8), "avx512_bf16");
  EXPECT_EQ(selected(DType::bf16, CodeType::f4_e2m1), "avx512_bf16");
  EXPECT_EQ(selected(DType::bf16, CodeType::f16), "t0_tile");
  EXPECT_EQ(selected(DType::f8_e4m3, CodeType::f8_e4m3), "avx512_bf16");
  EXPECT_EQ(selected(DType::f8_e4m3, CodeType::bf16), "t0_tile");
  args.a_group = 128;  // a part of a group of the weights
  EXPECT_EQ(selected(DType::f8_e4m3, CodeType::f8_e4m3), "t0_tile");
  args.weights.scale.rank = 4, args.weights.group = 64;
  EXPECT_EQ(selected(DType::f8_e4m3, CodeType::f8_e4m3), "avx512_bf16");
  EXPECT_EQ(selected(DType::u8, CodeType::f4_e2m1), "avx512_bf16");
  args.weights.k = 71;
  EXPECT_EQ(selected(DType::f8_e4m3, CodeType::f8_e4m3), "t0_tile");
  args.a_group = 0, args.weights.scale.rank = 0, args.weights.group = 0;
  args.a_zero_point = 1;
  EXPECT_EQ(selected(DType::i8, CodeType::i8), "t0_tile");
}

TEST(GroupedGemmSelectTest, TakesShorterRegistersWithoutAvx512) {
  grouped_gemm::Args args;
  args.out.rank = 2, args.out.shape[0] = 8;
  DeviceCaps zen3, alder_lake;
  zen3.type = alder_lake.type = DeviceType::cpu;
  zen3.preferred_float_width = alder_lake.preferred_float_width = 8;
  zen3.has_avx2 = alder_lake.has_avx2 = alder_lake.has_avx_vnni = true;
  const auto selected = [&](const DeviceCaps& caps, DType a, CodeType weights) {
    args.a.dtype = a, args.weights.type = weights;
    return select_on(caps, args);
  };
  for (const CodeType weights : {CodeType::f32, CodeType::bf16, CodeType::f4_e2m1})
    EXPECT_EQ(selected(alder_lake, DType::bf16, weights), "avx2");
  EXPECT_EQ(selected(zen3, DType::i8, CodeType::i8), "avx2");
  EXPECT_EQ(selected(alder_lake, DType::i8, CodeType::i4), "avx_vnni");
  args.weights.layout = PanelLayout::k_words;
  for (const CodeType weights : {CodeType::i4, CodeType::f4_e2m1}) {
    EXPECT_EQ(selected(alder_lake, DType::bf16, weights), "avx_vnni_digits");
    EXPECT_EQ(selected(zen3, DType::bf16, weights), "avx2_digits");
    EXPECT_EQ(selected(alder_lake, DType::f32, weights), "avx2");
  }
  EXPECT_EQ(selected(alder_lake, DType::bf16, CodeType::f8_e4m3), "avx2");
  args.weights.layout = PanelLayout::n_major;
  args.a_zero_point = 1;
  EXPECT_EQ(selected(alder_lake, DType::i8, CodeType::i8), "avx2");
  zen3.has_avx512 = true;
  EXPECT_EQ(selected(zen3, DType::f32, CodeType::f32), "t0_tile16");
}

TEST(GroupedGemmSelectTest, TakesProductsOfArm) {
  grouped_gemm::Args args;
  args.out.rank = 2, args.out.shape[0] = 8;
  DeviceCaps graviton2;
  graviton2.type = DeviceType::cpu, graviton2.preferred_float_width = 4, graviton2.has_neon_dot = true;
  DeviceCaps graviton3 = graviton2;
  graviton3.has_neon_i8mm = graviton3.has_neon_bf16 = true;
  const auto selected = [&](DType a, CodeType weights) {
    args.a.dtype = a, args.weights.type = weights;
    return select_on(graviton2, args);
  };
  EXPECT_EQ(selected(DType::i8, CodeType::i8), "neon_dot");
  EXPECT_EQ(selected(DType::i8, CodeType::i4), "neon_dot");
  EXPECT_EQ(select_on(graviton3, args), "neon_i8mm");
  for (const CodeType weights : {CodeType::bf16, CodeType::i4, CodeType::f8_e4m3}) {
    EXPECT_EQ(selected(DType::bf16, weights), "t0_tile16");
    EXPECT_EQ(select_on(graviton3, args), "neon_bf16");
  }
  EXPECT_EQ(selected(DType::f32, CodeType::f32), "t0_tile16");
  EXPECT_EQ(select_on(graviton3, args), "t0_tile16");
  EXPECT_EQ(grouped_gemm::row_dtype(CodeType::bf16, DType::f32, graviton2), DType::f32);
  EXPECT_EQ(grouped_gemm::row_dtype(CodeType::bf16, DType::f32, graviton3), DType::bf16);
  args.a_zero_point = 1;
  EXPECT_EQ(selected(DType::i8, CodeType::i8), "t0_tile16");
  for (const CodeType weights : {CodeType::i8, CodeType::i4})
    EXPECT_EQ(grouped_gemm::panel_layout({DType::i8, 0, weights, 2048, 128}, graviton2), PanelLayout::k_words);
  EXPECT_EQ(grouped_gemm::panel_layout({DType::f32, 0, CodeType::f32, 2048, 0}, graviton2), PanelLayout::n_major);
}

TEST(GroupedGemmSelectTest, RowsOfNumbersTakeWordsOfFourBitsWithoutAvx512) {
  DeviceCaps zen3, alder_lake;
  zen3.type = alder_lake.type = DeviceType::cpu;
  zen3.has_avx2 = alder_lake.has_avx2 = alder_lake.has_avx_vnni = true;
  for (const DeviceCaps& caps : {zen3, alder_lake})
    EXPECT_EQ(grouped_gemm::row_dtype(CodeType::i4, DType::bf16, caps), DType::bf16);
  const auto layout = [](const DeviceCaps& caps, DType a, CodeType weights, std::int64_t group) {
    return grouped_gemm::panel_layout({a, 0, weights, 2048, group}, caps);
  };
  for (const DeviceCaps& caps : {zen3, alder_lake}) {
    EXPECT_EQ(layout(caps, DType::bf16, CodeType::i4, 128), PanelLayout::k_words);
    EXPECT_EQ(layout(caps, DType::f16, CodeType::f4_e2m1, 32), PanelLayout::k_words);
    EXPECT_EQ(layout(caps, DType::bf16, CodeType::f4_e2m1, 16), PanelLayout::k_words);
    EXPECT_EQ(layout(caps, DType::f32, CodeType::i4, 128), PanelLayout::n_major);
    EXPECT_EQ(layout(caps, DType::bf16, CodeType::f8_e4m3, 128), PanelLayout::n_major);
  }
}

TEST(GroupedGemmSelectTest, TakesTilesBeforeDotProducts) {
  grouped_gemm::Args args;
  args.out.rank = 2, args.out.shape[0] = 8;
  DeviceCaps sapphire_rapids;
  sapphire_rapids.type = DeviceType::cpu, sapphire_rapids.preferred_float_width = 16;
  sapphire_rapids.has_avx512_vnni = sapphire_rapids.has_avx512_bf16 = true;
  sapphire_rapids.has_amx_int8 = sapphire_rapids.has_amx_bf16 = true;
  const auto selected = [&](DType a, CodeType weights) {
    args.a.dtype = a, args.weights.type = weights;
    return select_on(sapphire_rapids, args);
  };
  EXPECT_EQ(selected(DType::i8, CodeType::i8), "amx_int8");
  EXPECT_EQ(selected(DType::i8, CodeType::i4), "amx_int8");
  EXPECT_EQ(selected(DType::bf16, CodeType::bf16), "amx_bf16");
  EXPECT_EQ(selected(DType::bf16, CodeType::f4_e2m1), "amx_bf16");
  EXPECT_EQ(selected(DType::f32, CodeType::f32), "t0_tile");
  sapphire_rapids.has_amx_bf16 = false;
  EXPECT_EQ(selected(DType::bf16, CodeType::bf16), "avx512_bf16");
}

DeviceCaps nvidia(int compute_capability) {
  DeviceCaps caps;
  caps.type = DeviceType::gpu, caps.nv_compute_capability = compute_capability;
  return caps;
}

TEST(GroupedGemmSelectTest, TakesTensorCoresWhereBothSidesFit) {
  grouped_gemm::Args args;
  args.row_ends.rank = 1, args.row_ends.shape[0] = 8;
  args.a.dtype = args.out.dtype = DType::bf16, args.weights.type = CodeType::bf16;
  args.a.rank = args.out.rank = 2;
  args.a.stride[0] = 64;
  const DeviceCaps ampere = nvidia(80);
  DeviceCaps hopper = nvidia(90);
  hopper.nv_sm90a = true;
  const auto chosen = [&](const DeviceCaps& caps, std::int64_t rows) { return select_on(caps, args, {"", rows}); };
  EXPECT_EQ(chosen(ampere, 12), "nv_sm80_16");
  EXPECT_EQ(chosen(ampere, 13), "nv_sm80_64");
  EXPECT_EQ(chosen(hopper, 12), "nv_sm80_16");
  EXPECT_EQ(chosen(hopper, 512), "nv_sm90a_144");
  EXPECT_EQ(chosen(hopper, 513), "nv_sm90a_160");
  hopper.nv_sm90a = false;
  EXPECT_EQ(chosen(hopper, 97), "nv_sm80_64");
  hopper.nv_sm90a = true, args.a.stride[0] = 63;
  EXPECT_EQ(chosen(hopper, 97), "nv_sm80_64");
  args.weights.type = CodeType::f16;
  EXPECT_EQ(chosen(hopper, 97), "t0_local");
  EXPECT_EQ(grouped_gemm::row_dtype(CodeType::f16, DType::f32, ampere), DType::f16);
  EXPECT_EQ(grouped_gemm::row_dtype(CodeType::f32, DType::f32, ampere), DType::f32);
  EXPECT_EQ(grouped_gemm::row_dtype(CodeType::i4, DType::f32, ampere), DType::f32);
  EXPECT_EQ(grouped_gemm::row_dtype(CodeType::i4, DType::bf16, ampere), DType::bf16);
  EXPECT_EQ(grouped_gemm::row_dtype(CodeType::f6_e2m3, DType::bf16, ampere), DType::f32);
  EXPECT_EQ(grouped_gemm::row_dtype(CodeType::bf16, DType::bf16, DeviceCaps()), DType::f32);
  DeviceCaps zen4;
  zen4.type = DeviceType::cpu, zen4.has_avx512_bf16 = true;
  EXPECT_EQ(grouped_gemm::row_dtype(CodeType::bf16, DType::bf16, zen4), DType::bf16);
  EXPECT_EQ(grouped_gemm::row_dtype(CodeType::f16, DType::f16, zen4), DType::f32);
  EXPECT_EQ(grouped_gemm::row_dtype(CodeType::f32, DType::f32, zen4), DType::f32);
}

TEST(GroupedGemmSelectTest, TakesTensorCoresForCodes) {
  grouped_gemm::Args args;
  args.row_ends.rank = 1, args.row_ends.shape[0] = 8;
  args.out.dtype = DType::f32, args.a.rank = args.out.rank = 2;
  const DeviceCaps ampere = nvidia(80);
  DeviceCaps hopper = nvidia(90);
  const auto chosen = [&](const DeviceCaps& caps, DType a, CodeType weights, std::int64_t rows = 11) {
    args.a.dtype = a, args.weights.type = weights;
    return select_on(caps, args, {"", rows});
  };
  EXPECT_EQ(chosen(ampere, DType::bf16, CodeType::i4), "nv_sm80_codes_16");
  EXPECT_EQ(chosen(ampere, DType::i8, CodeType::i8, 12), "nv_sm80_i8_64");
  EXPECT_EQ(chosen(ampere, DType::f8_e4m3, CodeType::f8_e4m3), "t0_gemv");
  EXPECT_EQ(chosen(hopper, DType::f8_e4m3, CodeType::f8_e4m3, 11), "nv_sm89_f8_16");
  EXPECT_EQ(chosen(hopper, DType::f8_e4m3, CodeType::f8_e5m2), "t0_gemv");
  EXPECT_EQ(chosen(hopper, DType::f32, CodeType::i4), "t0_gemv");
  EXPECT_EQ(chosen(hopper, DType::i8, CodeType::f8_e4m3), "t0_gemv");
  EXPECT_EQ(chosen(hopper, DType::i8, CodeType::i8, 56), "nv_sm80_i8_64");
  hopper.nv_sm90a = true;
  EXPECT_EQ(chosen(hopper, DType::i8, CodeType::i8, 56), "nv_sm90a_codes_64");
  EXPECT_EQ(chosen(hopper, DType::f8_e4m3, CodeType::f8_e4m3, 57), "nv_sm90a_codes_128");
  args.weights.k = 62;
  EXPECT_EQ(chosen(hopper, DType::i8, CodeType::i8, 57), "nv_sm90a_codes_128");
  EXPECT_EQ(chosen(hopper, DType::i8, CodeType::i4, 57), "nv_sm80_i8_64");  // panels of 1984 bytes
  args.weights.k = 63;
  EXPECT_EQ(chosen(hopper, DType::i8, CodeType::i8, 57), "nv_sm80_i8_64");
  args.weights.k = 64;
  args.a_group = 128;
  EXPECT_EQ(chosen(hopper, DType::f8_e4m3, CodeType::f8_e4m3, 48), "nv_sm90a_groups_64");
  EXPECT_EQ(chosen(hopper, DType::f8_e4m3, CodeType::f8_e4m3, 49), "nv_sm90a_groups_128");
  EXPECT_EQ(chosen(hopper, DType::f8_e4m3, CodeType::f8_e4m3, 2), "nv_sm89_f8_groups_16");
  args.weights.layout = PanelLayout::k_major, args.weights.k = 256, args.weights.group = 128;
  args.weights.panel_scales = true, args.weights.scale.dtype = args.a_scale.dtype = DType::f32;
  EXPECT_EQ(chosen(hopper, DType::f8_e4m3, CodeType::f8_e4m3, 2), "nv_sm89_f8_groups_16");
  EXPECT_EQ(chosen(hopper, DType::f8_e4m3, CodeType::f8_e4m3, 3), "nv_sm90a_blocks_128");
  EXPECT_EQ(chosen(hopper, DType::f8_e4m3, CodeType::f8_e4m3, 1000), "nv_sm90a_blocks_128");
  args.weights = {}, args.weights.k = 64;
  args.a_group = 48;  // neither divides 128 nor is a multiple of it
  EXPECT_EQ(chosen(hopper, DType::f8_e4m3, CodeType::f8_e4m3), "t0_gemv");
}

TEST(GroupedGemmSelectTest, TakesTilesThatAreDoneSoonestWhereTheyAreFew) {
  DeviceCaps hopper = nvidia(90);
  hopper.nv_sm90a = true, hopper.compute_units = 132;
  hopper.max_alloc_bytes = std::uint64_t{1} << 34;
  BufferView scratch;
  const auto chosen = [&](DType a, CodeType weights, std::int64_t rows, std::int64_t experts, std::int64_t n,
                          std::int64_t group = 0) {
    grouped_gemm::Args args;
    args.a_group = group;
    args.a.dtype = a, args.out.dtype = DType::bf16, args.a.rank = args.out.rank = 2;
    args.a.stride[0] = args.weights.k = 4096;
    args.out.shape[0] = rows, args.weights.type = weights;
    args.weights.n = n, args.weights.experts = experts;
    args.row_ends.rank = 1, args.row_ends.shape[0] = experts;
    args.scratch = scratch;
    return select_on(hopper, args);
  };
  // The fastest variant on an H200; for one expert by measurement (bench/README.md).
  const auto bf16 = [&](std::int64_t rows, std::int64_t n) { return chosen(DType::bf16, CodeType::bf16, rows, 1, n); };
  EXPECT_EQ(bf16(64, 128), "nv_sm80_16");
  EXPECT_EQ(bf16(1024, 256), "nv_sm80_16");
  EXPECT_EQ(bf16(4096, 256), "nv_sm80_64");
  EXPECT_EQ(bf16(256, 4096), "nv_sm80_64");
  EXPECT_EQ(bf16(512, 4096), "nv_sm90a_144");
  EXPECT_EQ(bf16(1024, 4096), "nv_sm90a_144");
  EXPECT_EQ(chosen(DType::i8, CodeType::i8, 64, 1, 4096), "nv_sm80_i8_16");
  EXPECT_EQ(chosen(DType::i8, CodeType::i8, 256, 1, 7168), "nv_sm90a_codes_64");
  EXPECT_EQ(chosen(DType::i8, CodeType::i8, 1024, 1, 4096), "nv_sm90a_codes_128");
  EXPECT_EQ(chosen(DType::f8_e4m3, CodeType::f8_e4m3, 256, 1, 4096), "nv_sm90a_codes_64");
  EXPECT_EQ(chosen(DType::f8_e4m3, CodeType::f8_e4m3, 64, 8, 4096, 128), "nv_sm90a_groups_64");
  EXPECT_EQ(chosen(DType::f8_e4m3, CodeType::f8_e4m3, 64, 8, 4096), "nv_sm89_f8_16");
  // With K-slices, tiles of more rows fill the device too.
  EXPECT_EQ(bf16(64, 4096), "nv_sm80_16");
  scratch.size_bytes = grouped_gemm::scratch_bytes(hopper);
  EXPECT_EQ(bf16(64, 4096), "nv_sm80_64");
  EXPECT_EQ(bf16(64, 128), "nv_sm80_16");
  EXPECT_EQ(bf16(256, 4096), "nv_sm90a_144");
  EXPECT_EQ(bf16(1024, 4096), "nv_sm90a_144");
  hopper.max_alloc_bytes = 1 << 20;
  EXPECT_EQ(grouped_gemm::scratch_bytes(hopper), 0);
  EXPECT_EQ(bf16(64, 4096), "nv_sm80_16");
}

TEST_P(GroupedGemmTest, APlanServesAllArgumentsOfItsForm) {
  const GroupedGemmCase shape{{4, 0, 19}, 65, 33};
  const GroupedProduct product = make_product(shape, 2);
  Operands first(device(), shape, product), second(device(), shape, product);
  const grouped_gemm::Plan plan = grouped_gemm::plan(first.args, {}, device().record());
  ASSERT_FALSE(plan.refused()) << plan.why;
  EXPECT_EQ(plan.variant, grouped_gemm::select(first.args, {}, device().record()));
  EXPECT_THAT(plan.describe(), ::testing::StartsWith(plan.variant + ": " + std::to_string(plan.tile_rows) + " x "));
  for (const Operands* operands : {&first, &second}) {
    grouped_gemm::enqueue(device().stream, plan, operands->args);
    EXPECT_LE(grouped_gemm_error(shape, product, operands->out()), 1);
  }

  grouped_gemm::Args fewer = first.args;
  fewer.a = fewer.a.rows(0, 22), fewer.out = fewer.out.rows(0, 22);
  EXPECT_THROW(grouped_gemm::enqueue(device().stream, plan, fewer), Error);
  const grouped_gemm::Plan refused = grouped_gemm::plan(first.args, {"t1"}, device().record());
  EXPECT_TRUE(refused.refused());
  EXPECT_EQ(refused.describe(), "variant: there is no 't1'");
  EXPECT_THROW(grouped_gemm::enqueue(device().stream, refused, first.args), Error);
}

TEST_P(GroupedGemmTest, SumsSlicesOfK) {
  const std::uint64_t bytes = grouped_gemm::scratch_bytes(device().caps());
  EXPECT_EQ(bytes > 0, device().caps().nv_compute_capability >= 80);
  if (bytes == 0) GTEST_SKIP() << "no variant takes slices";
  for (const auto& [rows, n, k] : {std::tuple{1, 128, 2048},
                                   {37, 65, 1000},
                                   {70, 200, 4100},
                                   {16, 8, 520},
                                   {5, 64, 511},
                                   {5, 64, 512},
                                   {290, 300, 1536}}) {
    const GroupedGemmCase shape{{rows}, n, k, DType::bf16, DType::bf16, DType::f32, 0, 0, 0, true};
    const GroupedProduct product = make_product(shape, 4);
    for (const auto& [variant, tile_rows, columns] : {std::tuple{"nv_sm80_16", 16, 128},
                                                      {"nv_sm80_64", 64, 128},
                                                      {"nv_sm90a_144", 144, 256},
                                                      {"nv_sm90a_160", 160, 256}}) {
      const bool on_hopper = columns == 256;
      if (on_hopper && !device().caps().nv_sm90a) continue;
      const int tiles = ((rows + tile_rows - 1) / tile_rows) * ((n + columns - 1) / columns),
                units = device().caps().compute_units;
      Operands operands(device(), shape, product);
      auto args = operands.fitting(variant);
      ASSERT_TRUE(args);
      args->row_ends = {};
      std::vector<unsigned char> before(bytes, 0x77), after(bytes);
      const Buffer scratch(*device().context, bytes);
      write_blocking(device().stream, scratch.view(), before.data(), bytes);
      args->scratch = scratch.view();
      // The second launch finds the stamps of the first one in the scratch memory.
      for (int launch = 0; launch < 2; ++launch) {
        grouped_gemm::enqueue(device().stream, *args, {variant});
        EXPECT_LE(grouped_gemm_error(shape, product, operands.out()), 1) << variant << ", " << shape.describe();
      }
      read_blocking(device().stream, scratch.view(), after.data(), bytes);
      const bool is_sliced = before != after;
      EXPECT_EQ(is_sliced, units / tiles >= 2 && k >= 2 * 4 * 64) << variant << ", " << shape.describe();
      if (!is_sliced) continue;
      grouped_gemm::enqueue(device().stream, *args, {variant, {}, 0});
      for (const double late : operands.out()) EXPECT_TRUE(std::isnan(late)) << "nobody waited, and all is well";
      // Beside other kernels, a variant whose work-groups all wait for each other takes no slices.
      args->concurrent = true;
      args->scratch = scratch.view().slice(0, grouped_gemm::scratch_bytes(device().caps(), true));
      EXPECT_EQ(grouped_gemm::plan(*args, {variant}, device().record()).k_slices > 1, !on_hopper) << variant;
      grouped_gemm::enqueue(device().stream, *args, {variant});
      EXPECT_LE(grouped_gemm_error(shape, product, operands.out()), 1) << variant << ", " << shape.describe();
    }
  }
}

TEST_P(GroupedGemmTest, SaysWhyItRejects) {
  const GroupedGemmCase shape{{4, 3}, 65, 33};
  const Operands operands(device(), shape, make_product(shape, 1));
  const auto reason = [&](auto change) {
    grouped_gemm::Args args = operands.args;
    grouped_gemm::Config config;
    change(args, config);
    std::string text = grouped_gemm::reject(args, config, device().record());
    EXPECT_THROW(grouped_gemm::enqueue(device().stream, args, config), Error) << text;
    return text;
  };
  using Args = grouped_gemm::Args;
  using Config = grouped_gemm::Config;
  using ::testing::HasSubstr;
  EXPECT_EQ(grouped_gemm::reject(operands.args, {}, device().record()), "");
  EXPECT_THAT(reason([](Args& args, Config&) { args.a.shape[1] = 32; }),
              HasSubstr("a: expected f32, f16, bf16, i8, f8_e4m3 or f8_e5m2 [M, 33]"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.a = args.a.rows(0, 6); }), HasSubstr("a: expected 7 rows"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.out.dtype = DType::i32; }),
              HasSubstr("out: expected f32, f16, bf16 or i8 [R, 65], got i32"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.row_ends.dtype = DType::f32; }),
              HasSubstr("row_ends: expected i32[E]"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.row_ends = {}; }), HasSubstr("experts [0, 2) leave the 1"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.first_expert = 1; }), HasSubstr("experts [1, 3) leave the 2"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.index_divisor = 0; }), HasSubstr("index_divisor: 0"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.rows_per_expert = 4; }), HasSubstr("rows_per_expert: 4 x i32[2]"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.weights.k = 34; }),
              HasSubstr("weights: 2 experts of [65, 34] f32 need 34816 bytes"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.weights.buffer.offset_bytes = 4; }), HasSubstr("byte offset 4"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.a.dtype = DType::i32; }), HasSubstr("a: expected f32"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.weight_scale = args.out; }),
              HasSubstr("weight_scale: expected f32, f16, bf16 or 64-bit [2, 65 or 1], got f32[7, 65]"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.a_scale = args.row_ends; }),
              HasSubstr("a_scale: expected f32[7], got i32[2]"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.bias = args.out; }),
              HasSubstr("bias: expected f32, f16 or bf16 [2, 65 or 1], got f32[7, 65]"));
  EXPECT_THAT(reason([](Args& args, Config&) {
                args.sum_bias = args.out.rows(0, 2);
                args.sum_bias.dtype = DType::i32;
              }),
              HasSubstr("sum_bias: expected i32[2, 65] beside i8 x i8, got i32[2, 65] beside f32 x f32"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.a_zero_point = 8; }),
              HasSubstr("a_zero_point: 8 is not in [-128, 127] or `a` is not i8 but f32"));
  EXPECT_THAT(reason([](Args& args, Config&) { args.k_ends = args.row_ends; }),
              HasSubstr("k_ends: expected one matrix and neither row_ends nor a_index"));
  EXPECT_THAT(reason([](Args& args, Config&) {
                std::swap(args.k_ends, args.row_ends);
                args.weights.experts = 1;
              }),
              HasSubstr("out: expected 2 x 7 rows, one set for each window of k, got f32[7, 65]"));
  EXPECT_THAT(reason([](Args&, Config& config) { config.variant = "t9"; }), HasSubstr("there is no 't9'"));
  EXPECT_THAT(reason([](Args& args, Config&) {
                args.weights.type = CodeType::i8, args.a.dtype = DType::i8;
                args.weights.k = args.a.shape[1] = 1 << 17;
                args.weights.buffer.size_bytes = std::uint64_t{1} << 40;
                args.a_scale = args.weight_scale = args.row_ends;
                args.a_scale.dtype = DType::f32, args.a_scale.shape[0] = args.a.shape[0];
              }),
              HasSubstr("K = 131072 can overflow int32; at most 131071"));
}

}  // namespace
}  // namespace moecl::test
