#include <moecl/context.hpp>
#include <moecl/device.hpp>
#include <moecl/error.hpp>
#include <moecl/grouped_gemm.hpp>
#include <moecl/tuned_choices.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>
#include <string_view>
#include <utility>

#include "runtime/program_cache.hpp"
#include "tools/commands.hpp"
#include "tools/json_text.hpp"
#include "tools/printable.hpp"
#include "tools/table.hpp"
#include "tools/terminal.hpp"

namespace moecl::cli {
namespace {

/// A device, what its driver failed at, and the programs that it died of compiling, according to the program cache.
struct Found {
  DeviceReport report;
  std::vector<std::string> notes;
  std::vector<DeadProgram> dead;
};

/// Looks at a device through a context, which tries what drivers do not tell.
Found look_at(const DeviceReport& report) {
  Found found{report, {}, {}};
  if (!report.refused.empty()) return found;
  ContextOptions options;
  options.tuning = tuning::read;
  options.log_level = LogLevel::warning;
  options.log = [&found](LogLevel, std::string_view message) { found.notes.emplace_back(message); };
  try {
    const auto context = Context::create({report.device}, options);
    found.report.device = context->devices().front();
    found.dead = dead_programs(CacheFolder::default_dir(), report.device);
  } catch (const Error& error) {
    found.report.refused = error.what();
  }
  return found;
}

/// A variant, the number of rows of an expert up to which it is taken, and why.
struct Chosen {
  std::string variant, because;
  std::int64_t most_rows;

  bool operator==(const Chosen&) const = default;
};
/// Product types that get the same variants.
struct Products {
  std::vector<std::string> names;
  std::vector<Chosen> variants;
  std::vector<PanelLayout> layouts;  ///< layouts of weights that some kernel reads, the chosen one first
};

/// At least one variant. The last one takes any number of rows, also where no table has a variant for them.
std::vector<Chosen> chosen_for(DType a, CodeType weights, const Device& device) {
  const auto because = [&](std::string_view variant) -> std::string {
    for (const grouped_gemm::Variant& one : grouped_gemm::variants())
      if (one.name == variant) {
        const TunedChoice* tuned = tuning::find_most_rows(device.tuning, a, weights, variant);
        return one.written_for + (tuned != nullptr ? "; " + tuned->origin : std::string());
      }
    return {};
  };
  std::vector<Chosen> chosen;
  const auto reached = [&] { return chosen.empty() ? 0 : chosen.back().most_rows; };
  for (const auto& [variant, most_rows] : grouped_gemm::ranges(a, weights, device))
    if (most_rows > reached()) chosen.push_back({variant, because(variant), most_rows});
  if (reached() < grouped_gemm::any_rows) {
    grouped_gemm::Args args;
    args.a.dtype = a, args.weights.type = weights;
    const std::string left = grouped_gemm::select(args, {"", {reached() + 1, 1}}, device);
    chosen.push_back({left, because(left), grouped_gemm::any_rows});
  }
  return chosen;
}

std::string layouts_text(const std::vector<PanelLayout>& layouts) {
  std::string text = fmt::format("weights stand {}: {}", name(layouts.front()), grouped_gemm::why(layouts.front()));
  for (const PanelLayout& other : layouts)
    if (&other != &layouts.front())
      text += fmt::format("{}{}", &other == &layouts[1] ? "; --layout " : ", ", name(other));
  return text;
}

std::vector<Products> products_on(const Device& device) {
  constexpr std::pair<DType, CodeType> types[] = {
      {DType::f32, CodeType::f32},        {DType::f16, CodeType::f16}, {DType::bf16, CodeType::bf16},
      {DType::bf16, CodeType::i8},        {DType::bf16, CodeType::i4}, {DType::bf16, CodeType::f8_e4m3},
      {DType::bf16, CodeType::f4_e2m1},   {DType::i8, CodeType::i8},   {DType::i8, CodeType::i4},
      {DType::f8_e4m3, CodeType::f8_e4m3}};
  std::vector<Products> found;
  for (const auto& [a, weights] : types) {
    const std::vector<Chosen> variants = chosen_for(a, weights, device);
    std::vector<PanelLayout> layouts = grouped_gemm::panel_layouts(a, weights, device.caps);
    const PanelLayout chosen = grouped_gemm::panel_layout({a, 0, weights, PackedWeights::k_major_block}, device.caps);
    std::stable_partition(layouts.begin(), layouts.end(), [&](PanelLayout one) { return one == chosen; });
    const auto same = std::find_if(found.begin(), found.end(), [&](const Products& one) {
      return one.variants == variants && one.layouts == layouts;
    });
    Products& products = same != found.end() ? *same : found.emplace_back(Products{{}, variants, layouts});
    products.names.push_back(fmt::format("{} x {}", name(a), name(weights)));
  }
  return found;
}

std::vector<std::string> names_of(const std::vector<PanelLayout>& layouts) {
  std::vector<std::string> names;
  for (const PanelLayout layout : layouts) names.emplace_back(name(layout));
  return names;
}

nlohmann::ordered_json describe(const Found& found) {
  const DeviceReport& report = found.report;
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
  entry["cache_bytes"] = caps.cache_bytes;
  entry["local_mem_bytes"] = caps.local_mem_bytes;
  entry["max_work_group_size"] = caps.max_work_group_size;
  entry["fp16"] = caps.has_fp16;
  entry["subgroups"] = caps.has_subgroups;
  entry["integer_dot"] = caps.has_integer_dot;
  entry["avx2"] = caps.has_avx2;
  entry["avx_vnni"] = caps.has_avx_vnni;
  entry["avx512"] = caps.has_avx512;
  entry["avx512_vnni"] = caps.has_avx512_vnni;
  entry["avx512_bf16"] = caps.has_avx512_bf16;
  entry["amx_int8"] = caps.has_amx_int8;
  entry["amx_bf16"] = caps.has_amx_bf16;
  entry["neon_dot"] = caps.has_neon_dot;
  entry["neon_i8mm"] = caps.has_neon_i8mm;
  entry["neon_bf16"] = caps.has_neon_bf16;
  entry["nv_compute_capability"] = caps.nv_compute_capability;
  entry["nv_sm90a"] = caps.nv_sm90a;
  entry["tier"] = "T0";
  const std::vector<Chosen> f32 = chosen_for(DType::f32, CodeType::f32, report.device);
  entry["grouped_gemm"] = {{"few_rows", f32.front().variant},
                           {"many_rows", f32.back().variant},
                           {"bf16", chosen_for(DType::bf16, CodeType::bf16, report.device).back().variant},
                           {"i8", chosen_for(DType::i8, CodeType::i8, report.device).back().variant}};
  entry["variants"] = nlohmann::ordered_json::array();
  for (const Products& products : products_on(report.device))
    for (const Chosen& one : products.variants) {
      const bool any = one.most_rows == grouped_gemm::any_rows;
      entry["variants"].push_back({{"products", products.names},
                                   {"most_rows", any ? nullptr : nlohmann::ordered_json(one.most_rows)},
                                   {"variant", one.variant},
                                   {"because", one.because},
                                   {"layout", name(products.layouts.front())},
                                   {"layouts", names_of(products.layouts)}});
    }
  entry["quirks"] = caps.quirks;
  entry["notes"] = found.notes;
  entry["does_not_build"] = nlohmann::ordered_json::array();
  for (const DeadProgram& dead : found.dead)
    entry["does_not_build"].push_back({{"program", dead.program}, {"kernel", dead.target}, {"why", dead.why}});
  return entry;
}

std::string gib(std::uint64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / (1ULL << 30)); }

void print(const Found& found) {
  const DeviceReport& report = found.report;
  const DeviceCaps& caps = report.device.caps;
  fmt::print("{} / {}\n", printable(caps.platform_name), caps.name.empty() ? "-" : printable(caps.name));
  if (!report.refused.empty()) {
    fmt::print("refused: {}\n", printable(report.refused));
  } else {
    fmt::print("{}, driver {}\n{} compute units, {} GiB, at most {} GiB at once, {} KiB of local memory\n",
               name(caps.type), printable(caps.driver_version), caps.compute_units, gib(caps.global_mem_bytes),
               gib(caps.max_alloc_bytes), caps.local_mem_bytes / 1024);
    fmt::print("grouped product, without scales for groups of K, by rows of an expert:\n");
    for (const Products& products : products_on(report.device)) {
      std::vector<Row> variants;
      for (const Chosen& one : products.variants)
        variants.push_back(
            {one.most_rows == grouped_gemm::any_rows ? "  any" : fmt::format("  up to {}", one.most_rows), one.variant,
             one.because});
      for (const std::string& line : wrapped(fmt::format("{}", fmt::join(products.names, ", ")), line_width))
        fmt::print("{}\n", line);
      fmt::print("{}", table(variants));
      fmt::print("  {}\n", layouts_text(products.layouts));
    }
  }
  for (const DeadProgram& dead : found.dead)
    fmt::print("does not build: {}, {}: {}\n", printable(dead.program), printable(dead.target), printable(dead.why));
  for (const auto& notes : {caps.quirks, found.notes})
    for (const std::string& note : notes)
      for (const std::string& line : wrapped("note: " + printable(note), line_width)) fmt::print("{}\n", line);
}

void print(const std::vector<Found>& all) {
  for (const Found& found : all) {
    if (&found != &all.front()) fmt::print("\n");
    print(found);
  }
}

}  // namespace

void add_devices(CLI::App& app, Outcome outcome) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("devices", "List every OpenCL device, what it would get, and why one is refused");
  command->add_flag("--json", *json, "as JSON");
  command->callback([json, &outcome] {
    std::vector<Found> all;
    for (const DeviceReport& report : enumerate_devices()) all.push_back(look_at(report));
    bool usable = false;
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Found& found : all) {
      usable = usable || found.report.refused.empty();
      list.push_back(describe(found));
    }
    if (*json)
      std::cout << json_text(list, 2) << '\n';
    else if (!all.empty())
      print(all);
    if (usable) return;
    fmt::print(stderr, "moecl: no usable OpenCL device; is a driver such as pocl-opencl-icd installed?\n");
    outcome = device_failure;
  });
}

}  // namespace moecl::cli
