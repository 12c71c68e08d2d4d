#include <moecl/dense_backend.hpp>
#include <moecl/tuning_table.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "runtime/check.hpp"
#include "runtime/json_document.hpp"

namespace moecl::tuning {
extern const char* const dense_backend;  // tuning/dense_backend.json
}

namespace moecl::dense_backend {
namespace {

/// The user's measurements take precedence over the shipped ones. Errors in them are put in `problem`, not thrown.
Choice select_by_tables(std::string_view kind, const DeviceCaps& caps, DType dtype) {
  std::string problem;
  for (const tuning::Table& table : tuning::tables("dense_backend", tuning::dense_backend)) {
    const bool shipped = table.text == tuning::dense_backend;
    try {
      Choice choice = select_from(table.text, kind, caps, dtype);
      if (!choice.measured && !shipped) continue;  // the user has nothing for this device
      if (choice.measured) choice.reason += fmt::format(" ({})", table.origin);
      choice.problem = problem;
      return choice;
    } catch (const Error& error) {
      if (shipped) throw;
      problem = fmt::format("{}: ignored: {}", table.origin, error.what());
    }
  }
  return {};
}

}  // namespace

const char* name(Backend backend) noexcept { return backend == Backend::clblast ? "clblast" : "grouped_gemm"; }

Choice select(const DeviceCaps& caps, DType dtype) { return select_by_tables("dense", caps, dtype); }

Choice select_batched(const DeviceCaps& caps, DType dtype) { return select_by_tables("batched", caps, dtype); }

Choice select_from(std::string_view measurements, std::string_view kind, const DeviceCaps& caps, DType dtype) {
  if (dtype != DType::f32)
    return {Backend::grouped_gemm, fmt::format("CLBlast has no kernels for {} here", moecl::name(dtype))};
  try {
    const std::string found = tuning::find_entry(measurements, caps, std::string(kind));
    if (!found.empty()) {
      const JsonDocument document = JsonDocument::parse(found);
      const nlohmann::json& entry = document;
      const nlohmann::json& products = entry.at(std::string(kind));
      double log_ratio = 0;
      for (const nlohmann::json& product : products)
        log_ratio +=
            std::log(product.at("grouped_gemm_gflops").get<double>() / product.at("clblast_gflops").get<double>());
      const double ratio = std::exp(log_ratio / static_cast<double>(products.size()));
      Choice choice{ratio >= 1 ? Backend::grouped_gemm : Backend::clblast,
                    fmt::format("{:.1f} times the speed of {} on {} {} products, measured on {}",
                                std::max(ratio, 1 / ratio), name(ratio >= 1 ? Backend::clblast : Backend::grouped_gemm),
                                products.size(), kind, entry.at("measured_on").get<std::string>())};
      choice.measured = true;
      return choice;
    }
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::invalid_data, "dense backend measurements: {}", error.what());
  }
  return {Backend::grouped_gemm, "default: nothing was measured on such a device"};
}

}  // namespace moecl::dense_backend
