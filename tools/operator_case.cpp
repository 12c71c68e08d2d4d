#include "tools/operator_case.hpp"

#include <fstream>

#include "runtime/check.hpp"

namespace moecl::cli {

OperatorCase OperatorCase::open(const std::string& json_path) {
  std::ifstream stream(json_path);
  if (!stream) fail(ErrorCode::io_error, "{}: cannot be read", json_path);
  const std::size_t dot = json_path.rfind(".json");
  if (dot == std::string::npos || dot + 5 != json_path.size())
    fail(ErrorCode::invalid_data, "{}: expected CASE.json beside CASE.safetensors", json_path);
  nlohmann::json rules = nlohmann::json::parse(stream, nullptr, false);
  if (!rules.is_object() || !rules.value("operator", nlohmann::json()).is_string() ||
      !rules.value("parameters", nlohmann::json::object()).is_object())
    fail(ErrorCode::invalid_data, "{}: expected a JSON object with 'operator' and 'parameters'", json_path);
  return {json_path, std::move(rules), SafetensorsFile::open(json_path.substr(0, dot) + ".safetensors")};
}

std::string OperatorCase::operator_name() const { return rules.at("operator").get<std::string>(); }

nlohmann::json OperatorCase::parameters() const { return rules.value("parameters", nlohmann::json::object()); }

}  // namespace moecl::cli
