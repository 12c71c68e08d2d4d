#include "runtime/kept_decisions.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

class KeptDecisionsTest : public OnEveryDevice {
 protected:
  KeptDecisionsTest() : memory_(*device().context, 4096) {}

  TensorView matrix(std::uint64_t offset, std::int64_t rows, std::int64_t columns, DType dtype = DType::f32) const {
    return {memory_.view().slice(offset, 1024), dtype, {rows, columns}};
  }
  template <class... Values>
  DecisionForm form(const Values&... values) const {
    return {&maker_, *StreamView(device().stream).device, values...};
  }

 private:
  static inline const char maker_ = 0;
  Buffer memory_;
};
MOECL_ON_EVERY_DEVICE(KeptDecisionsTest);

TEST_P(KeptDecisionsTest, AFormIsWhatDecisionsDependOn) {
  const DecisionForm first = form(matrix(0, 4, 8), 3);
  EXPECT_TRUE(first == form(matrix(0, 4, 8), 3));
  EXPECT_TRUE(first == form(matrix(256, 4, 8), 3)) << "stands elsewhere, as well aligned";
  EXPECT_EQ(first.hash(), form(matrix(256, 4, 8), 3).hash());
  TensorView strided = matrix(0, 4, 8);
  strided.stride[0] = 16;
  for (const DecisionForm& other :
       {form(matrix(0, 8, 4), 3), form(matrix(0, 4, 8, DType::f16), 3), form(matrix(16, 4, 8), 3), form(strided, 3),
        form(TensorView(), 3), form(matrix(0, 4, 8), 4), form(matrix(0, 4, 8)), form(3, matrix(0, 4, 8))})
    EXPECT_FALSE(first == other);
  const Device copy = *StreamView(device().stream).device;
  const char another_maker = 0;
  EXPECT_FALSE(first == DecisionForm(&another_maker, *StreamView(device().stream).device, matrix(0, 4, 8), 3));
  EXPECT_FALSE(form(3) == DecisionForm(&another_maker, copy, 3));
}

TEST_P(KeptDecisionsTest, OneIsMadeOnceUnlessItFails) {
  KeptDecisions kept;
  int asked = 0;
  const auto make = [&] { return ++asked; };
  const auto fails = []() -> int { throw std::runtime_error("no such variant"); };
  EXPECT_THROW(kept.find<int>(form(1), fails), std::runtime_error);
  EXPECT_EQ(kept.made(), 0U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*kept.find<int>(form(1), make), 1);
  EXPECT_EQ(*kept.find<int>(form(2), make), 2);
  EXPECT_EQ(kept.made(), 2U);
}

TEST_P(KeptDecisionsTest, EverOtherFormsDoNotFillTheMemory) {
  KeptDecisions kept;
  const auto held = kept.find<int>(form(0), [] { return 0; });
  for (int i = 1; i < 5000; ++i) EXPECT_EQ(*kept.find<int>(form(i), [&] { return i; }), i);
  EXPECT_LE(kept.size(), 1024U);
  EXPECT_EQ(*held, 0) << "who has one keeps it";
}

}  // namespace
}  // namespace moecl::test
