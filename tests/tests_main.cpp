#include "tests/devices.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::printf("OpenCL devices under test:\n");
  for (const auto& device : moecl::test::devices())
    std::printf("  %s: %s, driver %s\n", device->label.c_str(), device->caps().name.c_str(), device->caps().driver_version.c_str());
  return RUN_ALL_TESTS();
}
