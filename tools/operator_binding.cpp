#include "tools/operator_binding.hpp"

#include <moecl/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace moecl::cli {
namespace {

/// Keys of a case that are not parameters of the operator.
bool is_remark(const std::string& parameter) {
  return parameter == "active_pairs" || parameter == "x_is_list" || parameter == "weight_is_list";
}

/// Whether it is a whole number that fits int64. A larger one would become negative, which may be as good a parameter.
bool is_whole(const nlohmann::json& value) {
  return value.is_number_integer() && (!value.is_number_unsigned() || value.get<std::uint64_t>() <= INT64_MAX);
}

npu::Value value_of(const nlohmann::json& value, const std::string& name) {
  if (value.is_boolean()) return value.get<bool>();
  if (is_whole(value)) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array() && std::all_of(value.begin(), value.end(), is_whole))
    return value.get<std::vector<std::int64_t>>();
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: expected true, false, a number, text or a list of whole numbers, got {}", name, value.dump()));
}

/// Names of the case's inputs, without the prefix `before`; a list's tensors in order: {"x", "weight.0", "weight.1"}.
std::vector<std::string> input_names(const SafetensorsFile& file, const std::string& before) {
  std::vector<std::string> names;
  for (const std::string& name : file.names())
    if (name.rfind(before, 0) == 0) names.push_back(name.substr(before.size()));
  const auto index = [](const std::string& name) {
    const std::size_t dot = name.find('.');
    return std::pair(name.substr(0, dot), dot == std::string::npos ? 0 : std::strtol(&name[dot + 1], nullptr, 10));
  };
  std::sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return index(a) < index(b); });
  return names;
}

TensorView view_of(BufferView memory, DType dtype, const std::vector<std::int64_t>& shape) {
  switch (shape.size()) {
    case 0:
      return {memory, dtype, {1}};
    case 1:
      return {memory, dtype, {shape[0]}};
    case 2:
      return {memory, dtype, {shape[0], shape[1]}};
    case 3:
      return {memory, dtype, {shape[0], shape[1], shape[2]}};
    case 4:
      return {memory, dtype, {shape[0], shape[1], shape[2], shape[3]}};
    default:
      throw Error(ErrorCode::invalid_data, fmt::format("a tensor of {} dimensions; at most 4", shape.size()));
  }
}

}  // namespace

std::string prefix_of(std::int64_t rank) { return rank < 0 ? "" : fmt::format("rank{}.", rank); }

std::unique_ptr<npu::BoundCall> bind_case(const OperatorCase& from, std::int64_t rank,
                                          const std::function<BufferView(const HostTensor&)>& place) {
  std::unique_ptr<npu::BoundCall> call = npu::find_operator(from.operator_name()).bind();
  const nlohmann::json parameters = from.parameters();
  for (const auto& [name, value] : parameters.items())
    if (rank >= 0 && name == "ep_rank_id")
      call->set_parameter(name, rank);
    else if (!is_remark(name) && !value.is_null())
      call->set_parameter(name, value_of(value, name));
  const std::string prefix = prefix_of(rank) + "in.";
  for (const std::string& name : input_names(from.tensors, prefix)) {
    const HostTensor tensor = from.tensors.tensor(prefix + name).in_memory();
    call->set_input(name.substr(0, name.find('.')), view_of(place(tensor), tensor.dtype, tensor.shape));
  }
  call->infer();
  return call;
}

}  // namespace moecl::cli
