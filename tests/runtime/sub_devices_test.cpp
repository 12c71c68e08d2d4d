#include <moecl/error.hpp>
#include <moecl/sub_devices.hpp>

#include <gmock/gmock.h>

#include <numeric>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

class SubDevicesTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(SubDevicesTest);

TEST_P(SubDevicesTest, DivideTheComputeUnitsOrSayWhyNot) {
  const Device& whole = device().context->devices().front();
  for (const std::uint32_t parts : {1U, 2U, 3U, whole.caps.compute_units + 1}) {
    const std::string why = SubDevices::reject(whole, parts);
    if (!why.empty()) {
      EXPECT_THAT(why, testing::HasSubstr(whole.caps.name));
      EXPECT_THROW(SubDevices(whole, parts), Error);
      continue;
    }
    const SubDevices divided(whole, parts);
    ASSERT_EQ(divided.devices().size(), parts);
    std::uint32_t units = 0;
    for (const Device& part : divided.devices()) units += part.caps.compute_units;
    EXPECT_EQ(units, whole.caps.compute_units);
    EXPECT_LE(divided.devices().front().caps.compute_units, divided.devices().back().caps.compute_units + 1);
  }
  EXPECT_NE(SubDevices::reject(whole, whole.caps.compute_units + 1), "");
}

TEST_P(SubDevicesTest, OfOneContextReadEachOthersMemory) {
  const Device& whole = device().context->devices().front();
  if (!SubDevices::reject(whole, 2).empty()) return;  // said by the test above
  const SubDevices divided(whole, 2);
  const std::unique_ptr<Context> context = Context::create(divided.devices());
  const Stream first(*context, 0), second(*context, 1);
  std::vector<std::int32_t> values(1000), arrived(1000);
  std::iota(values.begin(), values.end(), 7);
  const Buffer source(*context, 4000), target(*context, 4000);
  write_blocking(first, source.view(), values.data(), 4000);
  enqueue_copy(second, source.view(), target.view());
  read_blocking(second, target.view(), arrived.data(), 4000);
  EXPECT_EQ(arrived, values);
}

}  // namespace
}  // namespace moecl::test
