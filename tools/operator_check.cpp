// The compare rules of a recorded case, as the README of the operator goldens defines them.
#include <moecl/bf16.hpp>
#include <moecl/f16.hpp>

#include <cmath>
#include <cstring>
#include <functional>

#include "runtime/check.hpp"
#include "tools/operator_case.hpp"

namespace moecl::cli {
namespace {

using Json = nlohmann::json;

bool is_float(DType dtype) { return dtype == DType::f64 || is_activation_dtype(dtype); }

template <class T>
T element(const HostTensor& tensor, std::int64_t i) {
  T value;
  std::memcpy(&value, tensor.data.memory() + static_cast<std::uint64_t>(i) * sizeof(T), sizeof(T));
  return value;
}

double value_of(const HostTensor& tensor, std::int64_t i) {
  switch (tensor.dtype) {
    case DType::f64:
      return element<double>(tensor, i);
    case DType::f32:
      return element<float>(tensor, i);
    case DType::f16:
      return f16_to_f32(element<std::uint16_t>(tensor, i));
    case DType::bf16:
      return bf16_to_f32(element<std::uint16_t>(tensor, i));
    case DType::i64:
      return static_cast<double>(element<std::int64_t>(tensor, i));
    case DType::i32:
      return element<std::int32_t>(tensor, i);
    case DType::i16:
      return element<std::int16_t>(tensor, i);
    case DType::i8:
      return element<std::int8_t>(tensor, i);
    default:
      require(size_bytes(tensor.dtype) == 1, "{}: no values", tensor.describe());
      return element<std::uint8_t>(tensor, i);
  }
}

/// The bits as an integer, so that neighbouring numbers differ by one.
std::int64_t ordered(const HostTensor& tensor, std::int64_t i) {
  const bool wide = tensor.dtype == DType::f32;
  const std::int64_t bits = wide ? element<std::uint32_t>(tensor, i) : element<std::uint16_t>(tensor, i);
  const std::int64_t top = std::int64_t{1} << (wide ? 31 : 15);
  return bits >= top ? top - bits : bits;
}

int nibble(std::uint8_t byte, int shift) { return ((byte >> shift & 15) ^ 8) - 8; }

/// Whether an element agrees; `got_i` and `ref_i` are its indices in the result and in the reference.
using Rule = std::function<bool(std::int64_t got_i, std::int64_t ref_i)>;

Rule rule_of(const Json& rule, const HostTensor& got, const HostTensor& ref, const OperatorCase& with) {
  const auto kind = rule.at("kind").get<std::string>();
  const auto number = [&](const char* key) { return rule.at(key).get<double>(); };
  const auto close = [got, ref](auto within) -> Rule {
    return [=](std::int64_t i, std::int64_t j) {
      const double g = value_of(got, i), r = value_of(ref, j);
      return g == r || (std::isnan(g) && std::isnan(r)) || within(g, r);
    };
  };
  if (kind == "exact") return close([](double, double) { return false; });
  if (kind == "abs") return close([tol = number("tol")](double g, double r) { return std::abs(g - r) <= tol; });
  if (kind == "rel")
    return close([tol = number("rtol")](double g, double r) { return std::abs(g - r) <= tol * std::abs(r); });
  if (kind == "rel_abs")
    return close([tol = number("rtol"), least = number("atol")](double g, double r) {
      return std::abs(g - r) <= least + tol * std::abs(r);
    });
  if (kind == "abs_unpacked")
    return [got, ref, tol = number("tol")](std::int64_t i, std::int64_t j) {
      const auto size = static_cast<std::int64_t>(size_bytes(got.dtype));
      for (std::int64_t b = 0; b < size; ++b) {
        const auto g = element<std::uint8_t>(got, i * size + b), r = element<std::uint8_t>(ref, j * size + b);
        if (std::abs(nibble(g, 0) - nibble(r, 0)) > tol || std::abs(nibble(g, 4) - nibble(r, 4)) > tol) return false;
      }
      return true;
    };
  if (kind == "abs_masked_exact") {
    const HostTensor mask = with.tensors.tensor(rule.at("exact_where").get<std::string>()).in_memory();
    require(mask.elements() == ref.elements(), "{} masks {}", mask.describe(), ref.describe());
    return [got, ref, mask, tol = number("tol")](std::int64_t i, std::int64_t j) {
      const double difference = std::abs(value_of(got, i) - value_of(ref, j));
      return value_of(mask, j) != 0 ? difference == 0 : difference <= tol;
    };
  }
  if (kind == "ulp") {
    require(is_float(got.dtype) && got.dtype != DType::f64, "{} has no units in the last place", got.describe());
    return [got, ref, n = rule.at("n").get<std::int64_t>()](std::int64_t i, std::int64_t j) {
      const double g = value_of(got, i), r = value_of(ref, j);
      return g == r || (std::isnan(g) && std::isnan(r)) || std::abs(ordered(got, i) - ordered(ref, j)) <= n;
    };
  }
  fail(ErrorCode::invalid_data, "compare rule '{}' is unknown", kind);
}

/// Leading indices of the part that the operator defines; each is of `width` elements.
std::vector<std::int64_t> defined_rows(const Json& where, const HostTensor& ref) {
  const std::int64_t rows = ref.shape.empty() ? 1 : ref.shape.front();
  std::vector<std::int64_t> list;
  if (where.is_string()) {
    require(where == "all" || where == "prefix", "defined: '{}' is unknown", where.get<std::string>());
    for (std::int64_t row = 0; row < rows; ++row) list.push_back(row);
  } else if (where.contains("rows")) {
    for (auto row = where["rows"][0].get<std::int64_t>(); row < where["rows"][1].get<std::int64_t>(); ++row)
      list.push_back(row);
  } else {
    list = where.at(where.contains("row_list") ? "row_list" : "groups").get<std::vector<std::int64_t>>();
  }
  for (const std::int64_t row : list) require(row >= 0 && row < rows, "defined: row {} of {}", row, ref.describe());
  return list;
}

std::string compare(const Json& rule, const Json& where, const HostTensor& got, const std::string& expected,
                    const OperatorCase& with) {
  const HostTensor ref = with.tensors.tensor(expected).in_memory();
  if (got.dtype != ref.dtype || (where != "prefix" && got.shape != ref.shape) || got.elements() < ref.elements())
    return fmt::format("got {}, expected {}", got.describe(), ref.describe());
  const Rule agrees = rule_of(rule, got, ref, with);
  const std::int64_t rows = ref.shape.empty() ? 1 : ref.shape.front();
  const std::int64_t width = rows == 0 ? 0 : ref.elements() / rows;
  std::int64_t bad = 0, first = -1, count = 0;
  for (const std::int64_t row : defined_rows(where, ref))
    for (std::int64_t i = row * width; i < (row + 1) * width; ++i, ++count)
      if (!agrees(i, i)) {
        if (bad++ == 0) first = i;
      }
  if (bad == 0) return {};
  return fmt::format("{} of {} values differ; element {} is {:.9g}, expected {:.9g}", bad, count, first,
                     value_of(got, first), value_of(ref, first));
}

std::string verdict(const std::string& name, const Json& rule, const HostTensor& got, const OperatorCase& with) {
  const Json where = with.rules.value("defined", Json::object()).value(name, Json("all"));
  std::string difference = compare(rule, where, got, name, with);
  if (!difference.empty() && rule.contains("fallback") && compare(rule["fallback"], where, got, name, with).empty())
    return {};
  const std::size_t leaf = name.rfind("out.");
  const Json variants = with.rules.value("variants", Json::object());
  for (const auto& variant : variants.items()) {
    const std::string other = name.substr(0, leaf) + "variant." + variant.key() + "." + name.substr(leaf + 4);
    if (difference.empty() || !with.tensors.has(other)) continue;
    const Json other_rule = with.rules["compare"].value(other, Json{{"kind", "exact"}});
    if (compare(other_rule, where, got, other, with).empty()) difference.clear();
  }
  return difference;
}

}  // namespace

std::vector<OutputVerdict> check_outputs(const OperatorCase& with, const std::vector<OutputTensor>& outputs) try {
  std::vector<OutputVerdict> verdicts;
  for (const auto& [name, rule] : with.rules.at("compare").items()) {
    const auto kind = rule.at("kind").get<std::string>();
    if (name.find("out.") == std::string::npos || name.find("variant.") != std::string::npos || kind == "private")
      continue;
    OutputVerdict result{name, kind, "is missing"};
    for (const OutputTensor& output : outputs)
      if (output.name == name) result.difference = verdict(name, rule, output.host(), with);
    verdicts.push_back(std::move(result));
  }
  return verdicts;
} catch (const Json::exception& error) {
  fail(ErrorCode::invalid_data, "{}: {}", with.path, error.what());
} catch (const Error& error) {
  throw Error(ErrorCode::invalid_data, fmt::format("{}: {}", with.path, error.what()));
}

}  // namespace moecl::cli
