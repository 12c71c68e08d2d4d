#include <moecl/dense_backend.hpp>
#include <moecl/error.hpp>
#include <moecl/tuning_table.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "bench/dense_products.hpp"
#include "bench/device_time.hpp"
#include "runtime/atomic_file.hpp"
#include "tools/commands.hpp"
#include "tools/device_options.hpp"
#include "tools/table.hpp"

namespace moecl::cli {
namespace {

using Clock = std::chrono::steady_clock;
using dense_backend::Backend;

/// Router, shared experts, and experts in the batched layout; the shorter ones first, so that little time gives much.
constexpr bench::DenseShape shapes[] = {{1, 1, 128, 2048},   {8, 1, 1536, 2048},   {1, 16, 128, 2048},
                                        {8, 16, 1536, 2048}, {1, 16, 2048, 2816},  {1, 128, 128, 2048},
                                        {1, 1, 5120, 3584},  {8, 128, 1536, 2048}, {1, 128, 2048, 2816}};

/// Medians of a few calls. Errors: device_error  the results are wrong
double gflops(const bench::DenseProduct& product, Backend backend) {
  if (const double error = product.error(); !(error < 1e-5))
    throw Error(ErrorCode::device_error,
                fmt::format("{} gives wrong products: an error of {:.1e}, so nothing is written",
                            dense_backend::name(backend), error));
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    product.enqueue();
    bench::stream().finish();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return static_cast<double>(product.cost().flops) / 1e9 / seconds[2];
}

std::string read_user_table(const std::string& path) {
  for (const tuning::Table& table : tuning::tables("dense_backend", ""))
    if (table.origin == path) return table.text;
  return R"({"entries": []})";
}

void write_table(const std::string& path, const nlohmann::ordered_json& entry) {
  std::string text;
  try {
    text = tuning::with_entry(read_user_table(path), entry.dump());
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_data, fmt::format("{}: {}; remove it to tune anew", path, error.what()));
  }
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(),
                                      failed);  // the file says what is wrong
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void list() {
  const DeviceCaps& caps = bench::stream().device->caps;
  std::vector<Row> rows = {{"choice", "value", "where it comes from"}};
  std::string problem;
  for (const auto& [name, choice] : {std::pair("dense products", dense_backend::select(caps, DType::f32)),
                                     std::pair("batched products", dense_backend::select_batched(caps, DType::f32))}) {
    rows.push_back({name, dense_backend::name(choice.backend), choice.reason});
    problem = choice.problem;
  }
  fmt::print("{} / {}\n{}", caps.platform_name, caps.name, table(rows));
  if (!problem.empty()) fmt::print("{}\n", problem);
}

int tune(double time_limit) {
  const std::string path = tuning::user_file("dense_backend");
  if (path.empty())
    throw Error(ErrorCode::io_error, "tune: neither XDG_DATA_HOME nor HOME says where the user's data are");
  const auto end = Clock::now() + std::chrono::duration<double>(time_limit);
  const DeviceCaps& caps = bench::stream().device->caps;
  nlohmann::ordered_json entry = {
      {"match", {{"platform", caps.platform_name}, {"device", caps.name}}},
      {"measured_on", fmt::format("this device, driver {}, by moecl tune", caps.driver_version)},
      {"dense", nlohmann::ordered_json::array()},
      {"batched", nlohmann::ordered_json::array()}};
  for (const bench::DenseShape& shape : shapes) {
    if (Clock::now() >= end) break;
    nlohmann::ordered_json measured;
    if (shape.b > 1) measured["b"] = shape.b;
    measured.update({{"m", shape.m}, {"n", shape.n}, {"k", shape.k}});
    for (const Backend backend : {Backend::grouped_gemm, Backend::clblast})
      measured[fmt::format("{}_gflops", dense_backend::name(backend))] =
          gflops(bench::DenseProduct(shape, backend), backend);
    fmt::print("{}\n", measured.dump());
    entry[shape.b > 1 ? "batched" : "dense"].push_back(measured);
  }
  if (entry["dense"].empty() && entry["batched"].empty()) {
    fmt::print("the time was over before anything was known; nothing is written\n");
    return check_failed;
  }
  write_table(path, entry);
  fmt::print("wrote {}\n", path);
  list();
  return done;
}

}  // namespace

void add_tune(CLI::App& app, Outcome outcome) {
  struct Options {
    DeviceOptions device;
    double time_limit = 60;
    bool list = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("tune", "Measure which code is fastest on the device, for the user's table");
  options->device.add_to(*command);
  command->add_option("--time-limit", options->time_limit, "begin no measurement after so many seconds")
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("SECONDS")
      ->capture_default_str();
  command->add_flag("--list", options->list, "show what is chosen and where it comes from, and measure nothing");
  command->callback([options, &outcome] {
    bench::use(options->device.open());
    if (options->list)
      list();
    else
      outcome = tune(options->time_limit);
  });
}

}  // namespace moecl::cli
