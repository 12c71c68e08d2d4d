#include "bench/report_csv.hpp"

#include <fmt/format.h>

#include <cctype>
#include <set>

namespace moecl::bench {
namespace {

std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string csv(const std::vector<Run>& runs) {
  std::set<std::string> counters;
  for (const Run& run : runs)
    for (const Measured& one : run.all)
      for (const auto& [name, value] : one.counters) counters.insert(name);
  std::string text =
      "run,platform,device,driver,commit,date,benchmark,variant,repetitions,median_us,least_us,most_us,all_us";
  for (const std::string& name : counters) text += "," + field(name);
  text += "\r\n";
  for (const Run& run : runs)
    for (const Measured& one : run.all) {
      text += field(run.name);
      for (const char* key : {"platform", "device", "driver", "moecl_commit", "date"})
        text += "," + field(run.fact(key));
      text += fmt::format(",{},{},{},{},{},{},", field(one.name), field(one.label), one.seconds.size(),
                          one.median() * 1e6, one.seconds.front() * 1e6, one.seconds.back() * 1e6);
      for (std::size_t i = 0; i < one.seconds.size(); ++i)
        text += fmt::format("{}{}", i > 0 ? " " : "", one.seconds[i] * 1e6);
      for (const std::string& name : counters) {
        const auto found = one.counters.find(name);
        text += found != one.counters.end() ? fmt::format(",{}", found->second) : std::string(",");
      }
      text += "\r\n";
    }
  return text;
}

std::string data_url(const std::string& media_type, const std::string& text) {
  std::string url = "data:" + media_type + ";charset=utf-8,";
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view("-_.,:/").find(c) != std::string_view::npos;
    url += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return url;
}

}  // namespace moecl::bench
