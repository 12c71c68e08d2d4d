#include <moecl/tuned_choices.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>

#include "runtime/check.hpp"
#include "runtime/json_document.hpp"

namespace moecl::tuning {

extern const char* const operators;      // tuning/operators.json
extern const char* const gemm_variants;  // tuning/gemm_variants.json

namespace {

using nlohmann::json;

const TunedChoice* find(const Tuning& tuning, std::string_view name) {
  const auto& all = tuning.choices;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const TunedChoice& choice) { return choice.name == name; });
  return found != all.end() ? &*found : nullptr;
}

std::int64_t whole_number(const json& value) {
  if (!value.is_number_integer()) fail(ErrorCode::invalid_data, "expected a whole number, got {}", value.dump());
  return value.get<std::int64_t>();
}

std::int64_t lanes_from(const RowOperator& op, const json& value, const DeviceCaps& caps) {
  const std::int64_t lanes = whole_number(value);
  if (lanes < 1 || !std::has_single_bit(static_cast<std::uint64_t>(lanes)) ||
      static_cast<std::size_t>(lanes) > caps.max_work_group_size)
    fail(ErrorCode::invalid_data, "expected a power of two, at most {}, got {}", caps.max_work_group_size, lanes);
  if (lanes != 1 && caps.type == DeviceType::cpu && !op.shares_on_cpu)
    fail(ErrorCode::invalid_data, "expected 1 on a CPU, got {}", lanes);
  return lanes;
}

std::int64_t most_rows_from(const json& value) {
  const auto* word = value.get_ptr<const std::string*>();  // json == "any" would allocate, although it is noexcept
  const std::int64_t rows = word != nullptr && *word == "any" ? any_rows : whole_number(value);
  if (rows < 0) fail(ErrorCode::invalid_data, "{} rows are negative", rows);
  return rows;
}

std::int64_t most_rows_from(const json& value, const DeviceCaps& caps) {
  const std::int64_t rows = most_rows_from(value);
  if (rows != 0 && rows != any_rows && !rows_choose(caps))
    fail(ErrorCode::invalid_data,
         "expected 0 or \"any\", got {}: on this device a row's result must not depend on other rows", rows);
  return rows;
}

/// Errors: invalid_data  no choice has this name, or its value is not allowed
std::int64_t value_from(const std::string& name, const json& value, const DeviceCaps& caps) {
  for (const RowOperator& op : row_operators())
    if (name == lanes_name(op.name)) return lanes_from(op, value, caps);
  for (const auto& [a, weights] : operands())
    for (const VariantDefaults& variant : variant_defaults())
      if (name == most_rows_name(a, weights, variant.name)) return most_rows_from(value, caps);
  fail(ErrorCode::invalid_data, "there is no such choice");
}

void add_entry(const Entry& entry, const std::string& origin, const DeviceCaps& caps,
               std::vector<TunedChoice>& choices) {
  const JsonDocument document = JsonDocument::parse(entry.text);
  const json& data = document;
  const std::string from =
      fmt::format("{}, measured on {} ({})", entry.level, data.at("measured_on").get<std::string>(), origin);
  const json& given = data.at("choices");
  if (!given.is_object()) fail(ErrorCode::invalid_data, "choices: type must be object, got {}", given.type_name());
  for (const auto& [name, value] : given.items()) try {
      choices.push_back({name, value_from(name, value, caps), from});
    } catch (const Error& error) {
      fail(ErrorCode::invalid_data, "{}: {}", name, error.what());
    }
}

}  // namespace

const std::vector<RowOperator>& row_operators() {
  // Never destroyed: at exit, other code could use a static object after its destructor ran.
  static const auto* list = new std::vector<RowOperator>{
      {"gating_top_k", "32", false},    {"gather_rows", "64", true},
      {"quantize_rows", "64", true},    {"quantize_groups", "32 to 256, by the group", true},
      {"gated_activation", "64", true}, {"combine", "64", true}};
  return *list;
}

bool rows_choose(const DeviceCaps& caps) { return caps.type != DeviceType::cpu || caps.preferred_float_width < 4; }

const std::vector<VariantDefaults>& variant_defaults() {
  static const auto* list = [] {
    const JsonDocument document = JsonDocument::parse(gemm_variants);
    const json& data = document;
    auto* variants = new std::vector<VariantDefaults>;
    for (const auto& [name, measured] : data.at("variants").items())
      variants->push_back({name, most_rows_from(measured.at("most_rows")), measured.value("tile_us", 0.0),
                           measured.value("slices_us", 0.0), measured.value("least_rows", std::int64_t{0})});
    return variants;
  }();
  return *list;
}

const std::vector<std::pair<DType, CodeType>>& operands() {
  static const auto* list = new std::vector<std::pair<DType, CodeType>>{{DType::f32, CodeType::f32},
                                                                        {DType::f16, CodeType::f16},
                                                                        {DType::bf16, CodeType::bf16},
                                                                        {DType::i8, CodeType::i8},
                                                                        {DType::bf16, CodeType::i8}};
  return *list;
}

std::string lanes_name(std::string_view op) { return fmt::format("{}/lanes", op); }

std::string most_rows_name(DType a, CodeType weights, std::string_view variant) {
  return fmt::format("grouped_gemm/{}/{}/{}", name(a), name(weights), variant);
}

Tuning read_from(const std::vector<Table>& tables, const DeviceCaps& caps) {
  Tuning tuning;
  for (const Table& table : tables) {
    std::vector<TunedChoice> choices;
    try {
      for (const Entry& entry : matching_entries(table.text, caps)) add_entry(entry, table.origin, caps, choices);
    } catch (const std::exception& error) {
      tuning.problems.push_back(fmt::format("{}: ignored: {}", table.origin, error.what()));
      continue;
    }
    tuning.choices.insert(tuning.choices.end(), choices.begin(), choices.end());
  }
  return tuning;
}

Tuning read(const DeviceCaps& caps) { return read_from(tables("operators", operators), caps); }

const TunedChoice* find_lanes(const Tuning& tuning, std::string_view op) {
  return tuning.choices.empty() ? nullptr : find(tuning, lanes_name(op));
}

const TunedChoice* find_most_rows(const Tuning& tuning, DType a, CodeType weights, std::string_view variant) {
  return tuning.choices.empty() ? nullptr : find(tuning, most_rows_name(a, weights, variant));
}

std::vector<Line> describe(const Device& device) {
  std::vector<Line> lines;
  for (const RowOperator& op : row_operators()) {
    const TunedChoice* tuned = find_lanes(device.tuning, op.name);
    lines.push_back(line_of(lanes_name(op.name),
                            tuned != nullptr                      ? std::to_string(tuned->value)
                            : device.caps.type == DeviceType::cpu ? "1"
                                                                  : op.lanes_on_gpu,
                            tuned));
  }
  return lines;
}

Line line_of(const std::string& name, const std::string& value, const TunedChoice* tuned) {
  return {name, value, tuned != nullptr ? tuned->origin : "default"};
}

}  // namespace moecl::tuning
