#include <moecl/gather_rows.hpp>

#include "tests/devices.hpp"

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

}  // namespace
}  // namespace moecl::test
