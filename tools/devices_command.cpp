#include <moecl/device.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/tuned_choices.hpp>

#include <nlohmann/json.hpp>

#include <iostream>

#include "tools/commands.hpp"
#include "tools/table.hpp"

namespace moecl::cli {
namespace {

/// The grouped product's variant that a device gets for this many rows of one expert.
std::string variant_for(const DeviceCaps& caps, std::int64_t rows, DType a, CodeType weights) {
  grouped_gemm::Args args;
  const auto matrix = [rows](DType dtype, std::int64_t columns) {
    TensorView view;
    view.dtype = dtype;
    view.rank = 2;
    view.shape = {rows, columns};
    view.stride = {columns, 1};
    return view;
  };
  args.a = matrix(a, 2048);
  args.out = matrix(DType::f32, 1536);
  args.weights.type = weights;
  args.weights.experts = 1;
  args.weights.n = 1536;
  args.weights.k = 2048;
  return grouped_gemm::select(args, {}, caps);
}

/// What of them is chosen for which rows and operands.
struct Choices {
  std::string few_rows, many_rows, bf16, i8;
  explicit Choices(const DeviceCaps& caps)
      : few_rows(variant_for(caps, 1, DType::f32, CodeType::f32)),
        many_rows(variant_for(caps, 256, DType::f32, CodeType::f32)),
        bf16(variant_for(caps, 256, DType::bf16, CodeType::bf16)),
        i8(variant_for(caps, 256, DType::i8, CodeType::i8)) {}
};

nlohmann::ordered_json describe(const DeviceReport& report) {
  const DeviceCaps& caps = report.device.caps;
  nlohmann::ordered_json entry = {
      {"platform", caps.platform_name}, {"name", caps.name}, {"usable", report.refused.empty()}};
  if (!report.refused.empty()) {
    entry["refused"] = report.refused;
    return entry;
  }
  entry["type"] = name(caps.type);
  entry["vendor"] = caps.vendor;
  entry["driver"] = caps.driver_version;
  entry["opencl_c"] = caps.opencl_c_version;
  entry["compute_units"] = caps.compute_units;
  entry["global_mem_bytes"] = caps.global_mem_bytes;
  entry["max_alloc_bytes"] = caps.max_alloc_bytes;
  entry["local_mem_bytes"] = caps.local_mem_bytes;
  entry["max_work_group_size"] = caps.max_work_group_size;
  entry["fp16"] = caps.has_fp16;
  entry["subgroups"] = caps.has_subgroups;
  entry["integer_dot"] = caps.has_integer_dot;
  entry["avx512_vnni"] = caps.has_avx512_vnni;
  entry["avx512_bf16"] = caps.has_avx512_bf16;
  entry["amx_int8"] = caps.has_amx_int8;
  entry["amx_bf16"] = caps.has_amx_bf16;
  entry["tier"] = "T0";
  const Choices choices(caps);
  entry["grouped_gemm"] = {
      {"few_rows", choices.few_rows}, {"many_rows", choices.many_rows}, {"bf16", choices.bf16}, {"i8", choices.i8}};
  entry["quirks"] = caps.quirks;
  return entry;
}

std::string gib(std::uint64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / (1ULL << 30)); }

std::string joined(const Choices& of) {
  return fmt::format("{} / {} / {} / {}", of.few_rows, of.many_rows, of.bf16, of.i8);
}

void print(const std::vector<DeviceReport>& reports) {
  std::vector<Row> rows = {{"platform", "device", "type", "driver", "units", "memory GiB", "largest GiB", "local KiB",
                            "tier", "few rows / many rows / bf16 / i8, or why refused"}};
  for (const DeviceReport& report : reports) {
    const DeviceCaps& caps = report.device.caps;
    if (!report.refused.empty()) {
      rows.push_back({caps.platform_name, caps.name.empty() ? "-" : caps.name, "", "", "", "", "", "", "",
                      "refused: " + report.refused});
      continue;
    }
    rows.push_back({caps.platform_name, caps.name, name(caps.type), caps.driver_version,
                    std::to_string(caps.compute_units), gib(caps.global_mem_bytes), gib(caps.max_alloc_bytes),
                    std::to_string(caps.local_mem_bytes / 1024), "T0", joined(Choices(caps))});
  }
  fmt::print("{}", table(rows));
  for (const DeviceReport& report : reports) {
    const DeviceCaps& caps = report.device.caps;
    for (const auto& notes : {caps.quirks, caps.tuning.problems})
      for (const std::string& note : notes) fmt::print("note on {}: {}\n", caps.name, note);
  }
}

}  // namespace

void add_devices(CLI::App& app, Outcome outcome) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("devices", "List every OpenCL device, what it would get, and why one is refused");
  command->add_flag("--json", *json, "as JSON");
  command->callback([json, &outcome] {
    std::vector<DeviceReport> reports = enumerate_devices();
    for (DeviceReport& report : reports) report.device.caps.tuning = tuning::read(report.device.caps);
    bool usable = false;
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const DeviceReport& report : reports) {
      usable = usable || report.refused.empty();
      list.push_back(describe(report));
    }
    if (*json)
      std::cout << list.dump(2) << '\n';
    else if (!reports.empty())
      print(reports);
    if (usable) return;
    fmt::print(stderr, "moecl: no usable OpenCL device; is a driver such as pocl-opencl-icd installed?\n");
    outcome = device_failure;
  });
}

}  // namespace moecl::cli
