// Memory that device and host share: both see what the other wrote, for as long as a buffer lives.
#include "runtime/host_address.hpp"

#include <moecl/opencl.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

class HostAddress : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(HostAddress);

TEST_P(HostAddress, BothSeeWhatTheOtherWrote) {
  const StreamView stream = device().stream;
  EXPECT_EQ(host_shares_memory(*stream.context), device().caps().platform_name == "Portable Computing Language");
  if (!host_shares_memory(*stream.context)) return;
  for (int again = 0; again < 20; ++again) {  // a buffer may have the handle of a released one
    const Buffer buffer(*stream.context, 4096 + 64 * static_cast<std::uint64_t>(again));
    enqueue_fill(stream, buffer.view(), 0x01010101U * static_cast<std::uint32_t>(again));
    stream.finish();
    std::byte* const part = host_address(stream, buffer.view().slice(64, 128));
    EXPECT_EQ(host_address(stream, buffer.view()) + 64, part);
    for (int i = 0; i < 128; ++i) ASSERT_EQ(std::to_integer<int>(part[i]), again);
    std::memset(part, 200 + again, 128);
    std::vector<unsigned char> read(256);
    read_blocking(stream, buffer.view().slice(0, read.size()), read.data(), read.size());
    for (int i = 0; i < 256; ++i)
      ASSERT_EQ(read[static_cast<std::size_t>(i)], i >= 64 && i < 192 ? 200 + again : again);
  }
}

/// A driver may report the release of a buffer in a thread for which other threads wait.
TEST(HostAddresses, BuffersGoWhileOthersAreFound) {
  const TestDevice& on = *devices()[0];
  if (!host_shares_memory(*on.context)) return;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&on] {
      const Stream stream(*on.context), finding(*on.context);
      for (int i = 0; i < 300; ++i) {
        const Buffer buffer(*on.context, 4096);
        EXPECT_NE(host_address(finding, buffer.view()), nullptr);
        enqueue_fill(stream, buffer.view(), 7);
        stream.view().flush();
      }
      stream.finish();
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace moecl::test
