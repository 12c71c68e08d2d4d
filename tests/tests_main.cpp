#include <cstdio>
#include <string_view>

#include "tests/devices.hpp"

namespace moecl::test {
namespace {

constexpr std::string_view source_option = "--source=";

/// A filter that keeps the tests of one source file. ctest runs one process per file, so each program is built once.
std::string filter_of_source(std::string_view source) {
  std::string filter;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    const std::string_view file = suite.GetTestInfo(0)->file();
    if (file.size() > source.size() && file.substr(file.size() - source.size() - 1) == "/" + std::string(source))
      filter += std::string(suite.name()) + ".*:";
  }
  return filter;
}

/// Adds the number of kernels that ran on each platform to the report. It tells a run that tested nothing from one that
/// passed.
class KernelCounts : public ::testing::Environment {
  void TearDown() override {
    for (const auto& device : devices())
      ::testing::Test::RecordProperty("kernels on " + device->caps().platform_name,
                                      std::to_string(device->context->counters().kernels_launched.load()));
  }
};

}  // namespace
}  // namespace moecl::test

/// usage: moecl_tests [--source=FLOOR/STEM_test.cpp]... [GoogleTest's own options]
///
/// With --source, --gtest_filter may only exclude tests: --gtest_filter=-*Name*.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new moecl::test::KernelCounts);
  std::string of_sources;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string filter = argument.rfind(moecl::test::source_option, 0) == 0
                                   ? moecl::test::filter_of_source(argument.substr(moecl::test::source_option.size()))
                                   : "";
    if (filter.empty()) {
      std::fprintf(stderr, "%s: no such option, or no tests in that source\n", argv[i]);
      return 2;
    }
    of_sources += filter;
  }
  if (!of_sources.empty()) {
    const std::string left_out = GTEST_FLAG_GET(filter);
    if (left_out != "*" && left_out.front() != '-') {
      std::fprintf(stderr, "--gtest_filter=%s: beside --source it begins with '-'\n", left_out.c_str());
      return 2;
    }
    GTEST_FLAG_SET(filter, of_sources + (left_out == "*" ? "" : left_out));
  }
  std::printf("OpenCL devices under test:\n");
  for (const auto& device : moecl::test::devices())
    std::printf("  %s: %s, driver %s\n", device->label.c_str(), device->caps().name.c_str(),
                device->caps().driver_version.c_str());
  return RUN_ALL_TESTS();
}
