#include <moecl/buffer.hpp>
#include <moecl/opencl.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

/// Whether the kernel was asked for huge pages at `address`. If so, the VmFlags of its mapping have "hg".
bool asked_for_huge_pages(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (line.find(':') > line.find(' ') && words >> std::hex >> begin >> dash >> end) here = begin <= at && at < end;
    if (here && line.rfind("VmFlags:", 0) == 0) return (line + " ").find(" hg ") != std::string::npos;
  }
  return false;
}

class HugePagesTest : public OnEveryDevice {
 protected:
  /// Whether huge pages were asked for at the middle of a new buffer of that size, in the memory of a CPU.
  bool asked_for(std::uint64_t size_bytes) const {
    const Buffer buffer(*device().context, size_bytes);
    cl_int status = CL_SUCCESS;
    void* const data = clEnqueueMapBuffer(device().stream.view().queue, buffer.handle(), CL_TRUE, CL_MAP_READ, 0,
                                          size_bytes, 0, nullptr, nullptr, &status);
    EXPECT_EQ(status, CL_SUCCESS);
    const bool asked = asked_for_huge_pages(static_cast<const char*>(data) + size_bytes / 2);
    clEnqueueUnmapMemObject(device().stream.view().queue, buffer.handle(), data, 0, nullptr, nullptr);
    device().stream.finish();
    return asked;
  }
};
MOECL_ON_EVERY_DEVICE(HugePagesTest);

TEST_P(HugePagesTest, ACpuKeepsLargeBuffersInThem) {
  const bool offered = std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled");
  const bool cpu = device().caps().type == DeviceType::cpu;
  const bool maps_copies =
      device().caps().platform_name == "rusticl" && std::stoi(device().caps().driver_version) >= 25;
  if (!maps_copies) {
    EXPECT_EQ(asked_for(64 << 20), offered && cpu);
  }
  EXPECT_FALSE(asked_for(1 << 20));
}

}  // namespace
}  // namespace moecl::test
