#pragma once
// `moecl bench --compare`: the same benchmarks on several devices in turn.
#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "bench/report_page.hpp"

namespace moecl::cli {

/// The results of each device, in their order.
struct Comparison {
  std::vector<bench::NamedResults> runs;
  bool failed = false;  ///< a benchmark did
};

/// The results of `moecl bench --json` on each device, with the arguments of `command` other than --compare. Each
/// device gets a process of its own, because its roof and operands are kept for the whole process.
///
/// @param names  parts of the names of devices, or of platforms, whose first device is meant
/// Errors: no_device  before anything is measured; device_error  a process gave no results
Comparison compare_devices(const CLI::App& command, const std::vector<std::string>& names);
/// A table with the microseconds of each benchmark on each device.
std::string comparison_table(const std::vector<bench::NamedResults>& runs);

}  // namespace moecl::cli
