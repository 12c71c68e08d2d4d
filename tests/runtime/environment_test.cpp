#include <moecl/environment.hpp>

#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>

#include <sstream>

#include "runtime/cache_folder.hpp"
#include "runtime/log_spdlog.hpp"
#include "tests/devices.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using ::testing::HasSubstr;

/// Sets a variable for the life of the object; null unsets it.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name), before_(environment(name)) { set(value); }
  ~Setting() { set(before_ ? before_->c_str() : nullptr); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  void set(const char* value) { value != nullptr ? setenv(name_, value, 1) : unsetenv(name_); }
  const char* name_;
  std::optional<std::string> before_;
};

std::vector<Device> any_device() { return devices().front()->context->devices(); }

TEST(EnvironmentTest, KnowsOnlyTheVariablesOfItsTable) {
  const Setting setting("MOECL_CACHE_DIR", "/x");
  EXPECT_EQ(environment("MOECL_CACHE_DIR"), "/x");
  const Setting empty("MOECL_CACHE_DIR", "");
  EXPECT_EQ(environment("MOECL_CACHE_DIR"), std::nullopt);
  EXPECT_EQ(error_of([] { environment("PATH"); }).code(), ErrorCode::invalid_argument);
}

TEST(EnvironmentTest, FindsTheCacheFolder) {
  const Setting own("MOECL_CACHE_DIR", "/own"), xdg("XDG_CACHE_HOME", "/xdg"), home("HOME", "/home/me");
  EXPECT_EQ(CacheFolder::default_dir(), "/own");
  const Setting no_own("MOECL_CACHE_DIR", nullptr);
  EXPECT_EQ(CacheFolder::default_dir(), "/xdg/moecl/cl");
  {
    const Setting relative("XDG_CACHE_HOME", "relative");
    EXPECT_EQ(CacheFolder::default_dir(), "/home/me/.cache/moecl/cl");
  }
  const Setting no_xdg("XDG_CACHE_HOME", nullptr), no_home("HOME", nullptr);
  EXPECT_EQ(CacheFolder::default_dir(), "");
}

TEST(EnvironmentTest, SaysThatThereIsNoCacheFolder) {
  const Setting own("MOECL_CACHE_DIR", nullptr), xdg("XDG_CACHE_HOME", nullptr), home("HOME", nullptr);
  std::string lines;
  ContextOptions options;
  options.log = [&](LogLevel, std::string_view line) { lines += line; };
  options.log_level = LogLevel::warning;
  options.disk_cache = true;
  Context::create(any_device(), options);
  EXPECT_THAT(lines, HasSubstr("neither XDG_CACHE_HOME nor HOME is set"));
}

TEST(EnvironmentTest, RefusesValuesItDoesNotKnow) {
  {
    const Setting cache("MOECL_CACHE", "maybe");
    EXPECT_THAT(error_of([] { Context::create(any_device()); }).what(), HasSubstr("expected on or off, got 'maybe'"));
  }
  {
    const Setting features("MOECL_CPU_FEATURES", "avx2,mmx");
    EXPECT_THAT(error_of([] { enumerate_devices(); }).what(), HasSubstr("between commas, got 'avx2,mmx'"));
  }
  const Setting log("MOECL_LOG", "loud");
  EXPECT_THAT(error_of([] { Context::create(any_device()); }).what(), HasSubstr("got 'loud'"));
}

TEST(EnvironmentTest, HidesInstructionSets) {
  const Setting features("MOECL_CPU_FEATURES", "avx2,amx_int8");
  for (const DeviceReport& report : enumerate_devices()) {
    const DeviceCaps& caps = report.device.caps;
    EXPECT_FALSE(caps.has_avx_vnni || caps.has_avx512 || caps.has_avx512_vnni || caps.has_avx512_bf16 ||
                 caps.has_amx_bf16 || caps.has_neon_dot || caps.has_neon_i8mm || caps.has_neon_bf16);
    EXPECT_FALSE(caps.has_avx2 && caps.preferred_float_width > 8);
  }
}

TEST(EnvironmentTest, OptionsGoFirst) {
  const Setting level("MOECL_LOG", "error");
  std::vector<std::string> lines;
  ContextOptions options;
  options.log = [&](LogLevel at, std::string_view line) {
    if (at == LogLevel::info) return;  // what a context logs about itself
    lines.push_back(std::string(name(at)) + " " + std::string(line));
  };
  const auto context = Context::create(any_device(), options);
  context->log(LogLevel::warning, "dropped");
  context->log(LogLevel::error, "kept");
  options.log_level = LogLevel::debug;
  Context::create(any_device(), options)->log(LogLevel::debug, "asked for");
  options.log_level = LogLevel::off;
  Context::create(any_device(), options)->log(LogLevel::error, "silenced");
  EXPECT_THAT(lines, ::testing::ElementsAre("error kept", "debug asked for"));
}

TEST(LogTest, NamesEveryLevel) {
  for (const LogLevel level : {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error, LogLevel::off})
    EXPECT_EQ(log_level_from_name(name(level)), level);
  EXPECT_EQ(log_level_from_name("Warning"), std::nullopt);
}

TEST(LogTest, GoesThroughSpdlog) {
  std::ostringstream text;
  const auto logger = std::make_shared<spdlog::logger>("moecl", std::make_shared<spdlog::sinks::ostream_sink_mt>(text));
  logger->set_pattern("%l: %v");
  const LogCallback log = log_to(logger);
  log(LogLevel::debug, "below the logger's own level");
  log(LogLevel::warning, "{} is no format");
  log(LogLevel::error, "bad");
  EXPECT_EQ(text.str(), "warning: {} is no format\nerror: bad\n");
}

}  // namespace
}  // namespace moecl::test
