#include "bench/traced_kernels.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace moecl::bench {

std::vector<TracedKernel> traced_kernels(Trace& trace) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("moecl_traced_{}.json", Trace::now_ns());
  trace.write_chrome_json(path.string());
  std::ifstream file(path);
  const nlohmann::json read = nlohmann::json::parse(file);
  std::filesystem::remove(path);
  std::vector<TracedKernel> kernels;
  for (const auto& event : read.at("traceEvents")) {
    const std::string category = event.value("cat", "");
    if (category != "kernel" && category != "transfer") continue;
    const auto& args = event.at("args");
    kernels.push_back({event.at("name"), args.at("variant"),
                       category == "kernel" ? WorkKind::kernel : WorkKind::transfer, event.at("dur"), args.at("bytes"),
                       args.at("flops")});
  }
  return kernels;
}

}  // namespace moecl::bench
