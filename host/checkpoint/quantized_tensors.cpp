#include "host/checkpoint/quantized_tensors.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "host/checkpoint/weight_quantizer.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl {
namespace {

constexpr std::initializer_list<const char*> scale_suffixes = {"weight_scale", "weight_scale_inv", "scales", "scale"};
constexpr std::initializer_list<const char*> zero_suffixes = {"qzeros", "weight_zero_point"};

std::vector<std::int64_t> without_ones(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> result;
  for (const std::int64_t extent : shape)
    if (extent != 1) result.push_back(extent);
  return result;
}

[[noreturn]] void fail_shape(const TensorSource& source, const HostTensor& tensor, const char* dtype,
                             const std::vector<std::int64_t>& shape) {
  fail(ErrorCode::invalid_data, "{}: {}, but the quantization_config makes it {}[{}]", source.origin(),
       tensor.describe(), dtype, fmt::join(shape, ", "));
}

}  // namespace

/// How the integers of a tensor hold codes: `unit_codes` codes in each unit of `unit_bytes` bytes.
struct QuantizedTensors::Packing {
  CodeType type;
  DType unit;
  std::int32_t unit_bytes, unit_codes;
  bool along_rows = false, interleaved = false;
  bool transposed = false;  ///< the tensor is [K, N]
  bool blocks = false;      ///< the tensor is [N, K / 32, 16]: blocks of 16 bytes
};

/// A tensor with one number, or one for each expert.
struct QuantizedTensors::Scalar {
  const char* suffix;
  bool divides;  ///< the tensor holds the reciprocal of the multiplier
};

QuantizedTensors::Packing QuantizedTensors::packing() const {
  const CodeType type = *modules_.scheme.weights.type;
  const int in_word = 32 / bits(type);
  switch (modules_.form) {
    case StoredForm::gptq:
    case StoredForm::gptq_v2:
      return {.type = type, .unit = DType::i32, .unit_bytes = 4, .unit_codes = in_word, .transposed = true};
    case StoredForm::awq:
      return {type, DType::i32, 4, in_word, true, true, true};
    case StoredForm::words:
      return {type, DType::i32, 4, in_word};
    case StoredForm::blocks:
      return {.type = type, .unit = DType::u8, .unit_bytes = 1, .unit_codes = 2, .blocks = true};
    case StoredForm::rows:
      break;
  }
  Packing bytes{.type = type, .unit = DType::u8, .unit_bytes = 1, .unit_codes = 1, .transposed = part_.transposed};
  if (bits(type) == 4) bytes.unit_codes = 2;
  if (bits(type) == 6) bytes.unit_bytes = 3, bytes.unit_codes = 4;
  if (type == CodeType::i8) bytes.unit = DType::i8;
  if (type == CodeType::f8_e4m3) bytes.unit = DType::f8_e4m3;
  if (type == CodeType::f8_e5m2) bytes.unit = DType::f8_e5m2;
  return bytes;
}

std::vector<std::string> QuantizedTensors::names_of(std::initializer_list<const char*> suffixes) const {
  std::vector<std::string> names;
  // Names of stacked tensors do not end in ".weight": their scales are joined with '_'.
  const bool below = module_ != part_.name;
  for (const char* suffix : suffixes)
    for (const char* joint : {below ? "." : "_", below ? "_" : "."}) names.push_back(module_ + joint + suffix);
  return names;
}

/// The first of the names that the source has; empty when it has none.
std::string QuantizedTensors::name_of(std::initializer_list<const char*> suffixes) const {
  for (std::string& name : names_of(suffixes))
    if (source_.has(name)) return std::move(name);
  return {};
}

std::optional<HostTensor> QuantizedTensors::find(std::initializer_list<const char*> suffixes) const {
  const std::string name = name_of(suffixes);
  return name.empty() ? std::nullopt : std::optional(source_.tensor(name));
}

HostTensor QuantizedTensors::get(std::initializer_list<const char*> suffixes) const {
  if (auto tensor = find(suffixes)) return *std::move(tensor);
  fail(ErrorCode::invalid_data, "{} has no tensor \"{}.{}\", which its quantization_config asks for", source_.origin(),
       module_, fmt::join(suffixes, "\" or \"" + module_ + "."));
}

std::vector<std::string> QuantizedTensors::codes_names() const {
  switch (modules_.form) {
    case StoredForm::gptq:
    case StoredForm::gptq_v2:
    case StoredForm::awq:
      return names_of({"qweight"});
    case StoredForm::words:
      return names_of({"weight_packed"});
    case StoredForm::blocks:
      return names_of({"blocks"});
    case StoredForm::rows:
      break;
  }
  std::vector<std::string> names = names_of({"weight_packed"});
  names.push_back(part_.name);
  return names;
}

std::string QuantizedTensors::codes_name() const {
  for (std::string& name : codes_names())
    if (source_.has(name)) return std::move(name);
  return {};
}

std::vector<std::vector<std::string>> QuantizedTensors::needed() const {
  const QuantScheme& scheme = modules_.scheme;
  const StoredForm form = modules_.form;
  const bool words = form == StoredForm::gptq || form == StoredForm::gptq_v2 || form == StoredForm::awq;
  const auto any_of = [&](const char* usual, std::initializer_list<const char*> suffixes) {
    std::vector<std::string> names = names_of({usual});
    for (std::string& name : names_of(suffixes)) names.push_back(std::move(name));
    return names;
  };
  std::vector<std::vector<std::string>> all = {codes_names()};
  if (form == StoredForm::rows) std::swap(all[0].front(), all[0].back());
  all.push_back(any_of(words || form == StoredForm::blocks ? "scales"
                       : scheme.weights.group.rows > 1     ? "weight_scale_inv"
                                                           : "weight_scale",
                       scale_suffixes));
  if (scheme.weights.zero_points) all.push_back(any_of(words ? "qzeros" : "weight_zero_point", zero_suffixes));
  if (scheme.weights.scale == ScaleFormat::e4m3) all.push_back(names_of({"weight_scale_2", "weight_global_scale"}));
  if (scheme.activations.static_scale) all.push_back(names_of({"input_scale", "input_global_scale", "act_scale"}));
  return all;
}

std::optional<HostTensor> QuantizedTensors::find_codes() const {
  const std::string name = codes_name();
  if (name.empty()) return std::nullopt;
  HostTensor tensor = source_.tensor(name);
  return is_activation_dtype(tensor.dtype) ? std::nullopt : std::optional(std::move(tensor));
}

/// The part's codes, of the weights or of zero points.
CodeMatrix QuantizedTensors::codes(const HostTensor& tensor, const Packing& packing, const TensorPart& part) const {
  const std::int64_t row_units =
      packing.along_rows ? quotient_up(part.stored_rows, packing.unit_codes) : part.stored_rows;
  const std::int64_t column_units = packing.along_rows ? part.columns : quotient_up(part.columns, packing.unit_codes);
  std::vector<std::int64_t> shape = {row_units, column_units};
  if (packing.unit == DType::u8) shape[1] *= packing.unit_bytes;  // fp6: three bytes a unit
  if (packing.blocks) shape = {row_units, quotient_up(part.columns, 32), 16};
  if (packing.transposed) std::swap(shape[0], shape[1]);
  if (part.experts > 0) shape.insert(shape.begin(), part.experts);
  if (tensor.shape != shape || tensor.dtype != packing.unit) fail_shape(source_, tensor, name(packing.unit), shape);
  if ((packing.along_rows && part.step != 1) || (packing.transposed && packing.unit_bytes == 3))
    fail(ErrorCode::unsupported, "{}: {}: neighbouring codes of a unit are not neighbours in a row or column",
         source_.origin(), tensor.describe());

  CodeMatrix result;
  result.type = packing.type;
  result.rows = part.rows;
  result.columns = part.columns;
  result.unit_bytes = packing.unit_bytes;
  result.unit_codes = packing.unit_codes;
  result.packed_along_rows = packing.along_rows;
  result.interleaved = packing.interleaved;
  result.row_stride = packing.transposed ? 1 : packing.blocks ? shape[shape.size() - 2] * 16 : column_units;
  result.column_stride = packing.transposed ? row_units : 1;
  const std::int64_t of_expert = packing.transposed ? row_units * column_units : row_units * result.row_stride;
  const std::int64_t first_row = packing.along_rows ? part.first_row / packing.unit_codes : part.first_row;
  if (packing.along_rows) result.first_row = part.first_row % packing.unit_codes;
  result.data = tensor.data + (part.expert * of_expert + first_row * result.row_stride) * packing.unit_bytes;
  result.row_stride *= part.step;
  return result;
}

/// The part in the tensor of scales: its rows and columns count scale groups.
TensorPart QuantizedTensors::in_groups(const ScaleGroup& group) const {
  TensorPart part = part_;
  part.columns = group.columns == ScaleGroup::whole ? 1 : quotient_up(part_.columns, group.columns);
  if (group.rows == ScaleGroup::whole) {
    part.rows = part.stored_rows = part.step = 1;
    part.first_row = 0;
  } else if (group.rows > 1) {
    if (part_.step != 1 || part_.first_row % group.rows != 0)
      fail(ErrorCode::unsupported, "{}: {}: rows from {} in steps of {} do not keep to blocks of {}", source_.origin(),
           module_, part_.first_row, part_.step, group.rows);
    part.rows = quotient_up(part_.rows, group.rows);
    part.stored_rows = quotient_up(part_.stored_rows, group.rows);
    part.first_row = part_.first_row / group.rows;
  }
  part.transposed = packing().transposed;
  return part;
}

/// The configuration's scale group. If that is one scale per tensor, the tensor of scales may still have one per row.
ScaleGroup QuantizedTensors::group_of(const HostTensor& scale) const {
  const ScaleGroup group = modules_.scheme.weights.group;
  const bool each_row = part_.experts == 0 && part_.stored_rows > 1 && scale.elements() == part_.stored_rows;
  return group == ScaleGroup::per_tensor() && each_row ? ScaleGroup::per_channel() : group;
}

HostMatrix QuantizedTensors::scale(const HostTensor& tensor, const TensorPart& part) const {
  const ScaleFormat format = modules_.scheme.weights.scale;
  std::vector<std::int64_t> shape = {part.stored_rows, part.columns};
  if (part.transposed) std::swap(shape[0], shape[1]);
  if (part.experts > 0) shape.insert(shape.begin(), part.experts);
  const bool fits = format == ScaleFormat::e8m0   ? tensor.dtype == DType::u8
                    : format == ScaleFormat::e4m3 ? tensor.dtype == DType::f8_e4m3
                    : tensor.dtype == DType::u8   ? modules_.scheme.weights.rounding == ScaleRounding::ratio_up
                                                  : is_activation_dtype(tensor.dtype);
  // An axis with only one group: some producers keep it, others drop it.
  if (!fits || without_ones(tensor.shape) != without_ones(shape))
    fail_shape(source_, tensor,
               format == ScaleFormat::e8m0   ? "u8"
               : format == ScaleFormat::e4m3 ? "f8_e4m3"
                                             : "f32, f16 or bf16 ",
               shape);
  HostMatrix result;
  result.dtype = tensor.dtype;
  result.rows = part.rows;
  result.columns = part.columns;
  result.row_stride = part.transposed ? 1 : part.columns;
  result.column_stride = part.transposed ? part.stored_rows : 1;
  const std::int64_t first = part.expert * part.stored_rows * part.columns + part.first_row * result.row_stride;
  result.data = tensor.data + first * static_cast<std::int64_t>(size_bytes(tensor.dtype));
  result.row_stride *= part.step;
  return result;
}

std::vector<std::int32_t> QuantizedTensors::group_index(std::int64_t group_columns) const {
  const auto tensor = find({"g_idx", "weight_g_idx"});
  if (!tensor || group_columns == ScaleGroup::whole) return {};
  if (tensor->dtype != DType::i32 || tensor->shape != std::vector{part_.columns})
    fail_shape(source_, *tensor, "i32", {part_.columns});
  const std::int64_t groups = quotient_up(part_.columns, group_columns);
  std::vector<std::int32_t> index(static_cast<std::size_t>(part_.columns));
  tensor->data.read(index.data(), tensor->size_bytes);
  bool in_order = true;
  for (std::int64_t k = 0; k < part_.columns; ++k) {
    const std::int32_t group = index[static_cast<std::size_t>(k)];
    if (group < 0 || group >= groups)
      fail(ErrorCode::invalid_data, "{}: {}[{}] is {}, not one of {} groups", source_.origin(), tensor->name, k, group,
           groups);
    in_order = in_order && group == k / group_columns;
  }
  return in_order ? std::vector<std::int32_t>() : index;
}

void QuantizedTensors::check_weight_shape() const {
  const auto tensor = find({"weight_shape"});
  if (!tensor) return;
  if (tensor->dtype != DType::i64 || tensor->elements() != 2) fail_shape(source_, *tensor, "i64", {2});
  std::int64_t shape[2];
  tensor->data.read(shape, sizeof(shape));
  if (shape[0] != part_.stored_rows || shape[1] != part_.columns)
    fail(ErrorCode::invalid_data, "{}: {} is [{}, {}], but config.json makes it [{}, {}]", source_.origin(),
         tensor->name, shape[0], shape[1], part_.stored_rows, part_.columns);
}

float QuantizedTensors::number(std::initializer_list<Scalar> names) const {
  for (const Scalar& scalar : names) {
    const auto tensor = find({scalar.suffix});
    if (!tensor) continue;
    const bool for_each = part_.experts > 1 && tensor->elements() == part_.experts;
    if (!is_activation_dtype(tensor->dtype) || (tensor->elements() != 1 && !for_each))
      fail_shape(source_, *tensor, "f32, f16 or bf16 ", {part_.experts > 0 ? part_.experts : 1});
    const HostTensor stored = tensor->in_memory();
    const HostMatrix values(stored.data, stored.dtype, 1, stored.elements());
    const float value = element(values, 0, for_each ? part_.expert : 0);
    const float multiplier = scalar.divides ? 1 / value : value;
    if (!std::isfinite(multiplier) || multiplier <= 0)
      fail(ErrorCode::invalid_data, "{}: {} is {}, not above 0 and finite", source_.origin(), tensor->name, value);
    return multiplier;
  }
  fail(ErrorCode::invalid_data, "{} has no tensor \"{}.{}\", which its quantization_config asks for", source_.origin(),
       module_, names.begin()->suffix);
}

WeightMatrix QuantizedTensors::matrix() const {
  const auto stored = find_codes();
  if (!stored)
    fail(ErrorCode::invalid_data, "{} has no quantized tensor of \"{}\", which its quantization_config asks for",
         source_.origin(), module_);
  const OperandQuant& weights = modules_.scheme.weights;
  WeightMatrix matrix;
  matrix.codes = codes(*stored, packing(), part_);
  const HostTensor scales = get(scale_suffixes);
  matrix.group = group_of(scales);
  const TensorPart groups = in_groups(matrix.group);
  matrix.scale = scale(scales, groups);
  check_weight_shape();
  if (weights.zero_points) {
    Packing zeros = packing();
    // Packed along N, however the weights are packed. Source: each producer's packing of qzeros and weight_zero_point
    zeros.along_rows = modules_.form != StoredForm::rows;
    matrix.zero = codes(get(zero_suffixes), zeros, groups);
    matrix.zero_add = modules_.form == StoredForm::gptq ? 1 : 0;
  }
  matrix.group_index = group_index(weights.group.columns);
  // Source: compressed-tensors stores the reciprocal of what ModelOpt stores.
  if (weights.scale == ScaleFormat::e4m3)
    matrix.global_scale = number({{"weight_global_scale", true}, {"weight_scale_2", false}});
  return matrix;
}

std::optional<float> QuantizedTensors::input_scale() const {
  if (!modules_.scheme.activations.static_scale) return std::nullopt;
  return number({{"input_global_scale", true}, {"input_scale", false}, {"act_scale", false}});
}

}  // namespace moecl
