#include <moecl/dense_backend.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "runtime/check.hpp"

namespace moecl::tuning {
extern const char* const dense_backend;  // tuning/dense_backend.json
}

namespace moecl::dense_backend {
namespace {

/// Every property that the entry names must be part of the device's.
bool matches(const nlohmann::json& entry, const DeviceCaps& caps) {
  const nlohmann::json& wanted = entry.at("match");
  const auto fits = [&](const char* property, const std::string& value) {
    return value.find(wanted.value(property, "")) != std::string::npos;
  };
  return fits("platform", caps.platform_name) && fits("device", caps.name) && fits("vendor", caps.vendor) &&
         fits("type", moecl::name(caps.type));
}

}  // namespace

const char* name(Backend backend) noexcept { return backend == Backend::clblast ? "clblast" : "grouped_gemm"; }

Choice select(const DeviceCaps& caps, DType dtype) { return select_from(tuning::dense_backend, "dense", caps, dtype); }

Choice select_batched(const DeviceCaps& caps, DType dtype) {
  return select_from(tuning::dense_backend, "batched", caps, dtype);
}

Choice select_from(std::string_view measurements, std::string_view kind, const DeviceCaps& caps, DType dtype) {
  if (dtype != DType::f32)
    return {Backend::grouped_gemm, fmt::format("CLBlast has no kernels for {} here", moecl::name(dtype))};
  try {
    const nlohmann::json data = nlohmann::json::parse(measurements);
    for (const nlohmann::json& entry : data.at("entries")) {
      if (!matches(entry, caps)) continue;
      const nlohmann::json& products = entry.at(std::string(kind));
      if (products.empty()) continue;
      double log_ratio = 0;
      for (const nlohmann::json& product : products)
        log_ratio +=
            std::log(product.at("grouped_gemm_gflops").get<double>() / product.at("clblast_gflops").get<double>());
      const double ratio = std::exp(log_ratio / static_cast<double>(products.size()));
      return {ratio >= 1 ? Backend::grouped_gemm : Backend::clblast,
              fmt::format("{:.1f} times the speed of {} on {} {} products, measured on {}", std::max(ratio, 1 / ratio),
                          name(ratio >= 1 ? Backend::clblast : Backend::grouped_gemm), products.size(), kind,
                          entry.at("measured_on").get<std::string>())};
    }
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::invalid_data, "dense backend measurements: {}", error.what());
  }
  return {Backend::grouped_gemm, "default: nothing was measured on such a device"};
}

}  // namespace moecl::dense_backend
