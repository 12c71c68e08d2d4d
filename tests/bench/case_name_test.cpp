// The parts of a benchmark's name, and the order in which people expect them.
#include "bench/case_name.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

namespace moecl::bench {
namespace {

using testing::ElementsAre;

TEST(CaseNameTest, PartsWithANumberAreTheRow) {
  const CaseName layer("layer/qwen3-30b-a3b/bf16/T:16/onednn");
  EXPECT_EQ(layer.what, "layer");
  EXPECT_EQ(layer.group, "qwen3-30b-a3b bf16");
  EXPECT_EQ(layer.row, "T:16");
  EXPECT_EQ(layer.implementation, "onednn");
  EXPECT_EQ(layer.tokens, 16);
  const CaseName rows("quantize_groups/bf16/e4m3/token/N:4096");
  EXPECT_EQ(rows.group, "bf16 e4m3 token");
  EXPECT_EQ(rows.row, "N:4096");
  EXPECT_EQ(rows.implementation, "moecl");
  EXPECT_EQ(rows.tokens, 0);
}

TEST(CaseNameTest, ANameWithoutNumbersIsARow) {
  EXPECT_EQ(CaseName("launch/raw_opencl").row, "raw_opencl");
  EXPECT_EQ(CaseName("launch/raw_opencl").group, "");
  EXPECT_EQ(CaseName("launch/raw_opencl").implementation, "moecl");
  EXPECT_EQ(CaseName("").what, "");
}

TEST(CaseNameTest, NumbersStandInTheirOrder) {
  std::vector<std::string> names = {"T:128", "T:1", "a", "T:16", "T:16/b", "", "T:02", "int8", "int4_w4a16", "T:16384"};
  std::sort(names.begin(), names.end(), natural_less);
  EXPECT_THAT(names, ElementsAre("", "T:1", "T:02", "T:16", "T:16/b", "T:128", "T:16384", "a", "int4_w4a16", "int8"));
  EXPECT_FALSE(natural_less("T:16", "T:16"));
  EXPECT_TRUE(natural_less("99999999999999999999998", "99999999999999999999999"));
}

}  // namespace
}  // namespace moecl::bench
