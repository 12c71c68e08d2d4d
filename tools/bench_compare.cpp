#include "tools/bench_compare.hpp"

#include <moecl/error.hpp>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <unistd.h>

#include "bench/measured.hpp"
#include "tools/device_options.hpp"
#include "tools/printable.hpp"
#include "tools/shell_text.hpp"
#include "tools/table.hpp"
#include "tools/terminal.hpp"

namespace moecl::cli {
namespace {

/// The command's arguments, without those that choose where it runs and what becomes of the results.
std::string arguments_of(const CLI::App& command) {
  const std::set<std::string> own = {"--compare", "--report", "--json"};
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || own.count(option->get_name()) != 0) continue;
    text += fmt::format(" {}", option->get_name());
    if (option->get_expected_max() == 0) continue;  // a flag
    const char between = option->get_delimiter();
    text += fmt::format(" {}", quoted(fmt::format("{}", fmt::join(option->results(), std::string(1, between)))));
  }
  return text;
}

/// Runs `moecl bench` on the device in a process of its own; its progress goes where this program's would.
void add_results(Comparison& to, const Device& device, const std::string& arguments) {
  const std::string line = fmt::format("exec /proc/{}/exe bench --json --platform {} --device {}{}", getpid(),
                                       quoted(device.caps.platform_name), quoted(device.caps.name), arguments);
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(popen(line.c_str(), "r"), pclose);
  if (out == nullptr) throw Error(ErrorCode::device_error, "bench --compare: no process could be started");
  std::string text;
  char part[4096];
  while (const std::size_t size = std::fread(part, 1, sizeof(part), out.get())) text.append(part, size);
  nlohmann::ordered_json document = nlohmann::ordered_json::parse(text, nullptr, false);
  if (document.is_discarded())
    throw Error(ErrorCode::device_error, fmt::format("bench --compare: no results of {}", device.caps.name));
  to.failed = pclose(out.release()) != 0 || to.failed;
  to.runs.push_back({device.caps.name, std::move(document)});
}

}  // namespace

Comparison compare_devices(const CLI::App& command, const std::vector<std::string>& names) {
  std::vector<Device> devices;
  for (const std::string& name : names) devices.push_back(device_named(name));
  const std::string arguments = arguments_of(command);
  Comparison comparison;
  for (const Device& device : devices) {
    if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "moecl: bench: on {}\n", printable(device.caps.name));
    add_results(comparison, device, arguments);
  }
  return comparison;
}

std::string comparison_table(const std::vector<bench::NamedResults>& runs) {
  std::vector<Row> rows = {{"benchmark"}};
  std::map<std::string, std::size_t> row_of;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    rows.front().push_back(runs[run].name + " us");
    for (const bench::Measured& measured : bench::measured(runs[run].document, runs[run].name)) {
      const auto [place, is_new] = row_of.emplace(measured.name, rows.size());
      if (is_new) rows.push_back({measured.name});
      Row& row = rows[place->second];
      row.resize(run + 1, "-");
      row.push_back(fmt::format("{:.1f}", measured.median() * 1e6));
    }
  }
  for (Row& row : rows) row.resize(runs.size() + 1, "-");
  return table(rows, line_width);
}

}  // namespace moecl::cli
