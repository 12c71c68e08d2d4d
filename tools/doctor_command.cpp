#include <moecl/environment.hpp>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <iostream>

#include "runtime/cache_folder.hpp"
#include "tests/cases/self_test.hpp"
#include "tools/commands.hpp"
#include "tools/device_options.hpp"
#include "tools/json_text.hpp"
#include "tools/printable.hpp"
#include "tools/progress.hpp"
#include "tools/table.hpp"
#include "tools/terminal.hpp"

namespace moecl::cli {
namespace {

/// Writes a program to the cache folder, reads it back and removes it.
struct CacheCheck {
  std::string folder = CacheFolder::default_dir(), result;
  bool ok = false;

  CacheCheck() {
    if (environment("MOECL_CACHE") == "off") {
      ok = true;
      result = "off, as MOECL_CACHE says";
      return;
    }
    try {
      const CacheFolder cache(folder);
      const CacheKey key{0, 0};
      const CacheFolder::Content probe = {"a probe's", {'m', 'o', 'e', 'c', 'l'}};
      cache.write(key, "doctor's probe", "none", probe);
      ok = cache.read(key) == probe;
      std::uint64_t programs = 0, bytes = 0;
      for (const CacheEntry& entry : cache.entries()) {
        if (entry.program == "doctor's probe") {
          std::filesystem::remove(entry.path);
          continue;
        }
        ++programs;
        bytes += entry.size_bytes;
      }
      result =
          ok ? fmt::format("writable, {} programs, {} bytes", programs, bytes) : "reads other bytes than were written";
    } catch (const std::exception& error) {
      result = error.what();
    }
  }
};

int diagnose(const DeviceOptions& options, bool json) {
  const auto context = options.open();
  const Stream stream(*context);
  const DeviceCaps& caps = context->devices().front().caps;
  std::vector<Row> rows = {{"operator", "variant", "shape", "error", "tolerance", "result"}};
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  int passed = 0, failed = 0;
  std::vector<test::SelfTestResult> results;
  {
    Progress progress("self-tests");
    results = test::run_self_tests(stream, std::ref(progress));
  }
  for (const test::SelfTestResult& result : results) {
    ++(result.ok() ? passed : failed);
    rows.push_back({result.op, result.variant, result.shape, fmt::format("{:.1e}", result.error),
                    fmt::format("{:.1e}", result.tolerance), result.ok() ? "ok" : "FAIL"});
    list.push_back({{"operator", result.op},
                    {"variant", result.variant},
                    {"shape", result.shape},
                    {"error", result.error},
                    {"tolerance", result.tolerance},
                    {"ok", result.ok()}});
  }
  const CacheCheck cache;
  ++(cache.ok ? passed : failed);
  if (json) {
    const nlohmann::ordered_json report = {
        {"platform", caps.platform_name},
        {"device", caps.name},
        {"driver", caps.driver_version},
        {"self_tests", list},
        {"program_cache", {{"folder", cache.folder}, {"ok", cache.ok}, {"result", cache.result}}},
        {"passed", passed},
        {"failed", failed}};
    std::cout << json_text(report, 2) << '\n';
  } else {
    fmt::print("{} / {} (driver {})\n{}program cache {}: {}{}\n{} passed, {}\n", printable(caps.platform_name),
               printable(caps.name), printable(caps.driver_version), table(rows), printable(cache.folder),
               cache.ok ? "" : verdict("FAIL: "), printable(cache.result), passed,
               verdict(failed == 0, fmt::format("{} failed", failed)));
  }
  return failed == 0 && passed > 0 ? done : check_failed;
}

}  // namespace

void add_doctor(CLI::App& app, Outcome outcome) {
  auto options = std::make_shared<DeviceOptions>();
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("doctor", "Run every operator's self-test on the chosen device against the host oracle");
  options->add_to(*command);
  command->add_flag("--json", *json, "as JSON");
  add_progress(*command);
  command->callback([options, json, &outcome] { outcome = diagnose(*options, *json); });
}

}  // namespace moecl::cli
