#include "host/layer/weight_format.hpp"

#include <algorithm>

#include "host/layer/weight_upload.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl {
namespace {

bool has_groups(const WeightMatrix& matrix) {
  return matrix.quantized() &&
         (matrix.zero.present() || !matrix.group_index.empty() || matrix.group.columns != ScaleGroup::whole);
}

std::int64_t group_columns(const WeightMatrix& matrix) {
  return matrix.group.columns == ScaleGroup::whole ? matrix.columns() : matrix.group.columns;
}

std::int64_t group_of(const WeightMatrix& matrix, std::int64_t k) {
  return matrix.group_index.empty() ? k / group_columns(matrix) : matrix.group_index[static_cast<std::size_t>(k)];
}

/// Whether groups are runs of K. A checkpoint may have a group index although they are.
bool has_runs(const WeightMatrix& matrix) {
  for (std::int64_t k = 0; k < matrix.columns(); ++k)
    if (group_of(matrix, k) != k / group_columns(matrix)) return false;
  return true;
}

/// Whether scale blocks cover whole panels: the matrix must begin and end at a panel border, unless it is alone.
bool has_panel_scales(const ScaleGroup& group, std::int64_t rows, bool alone) {
  const std::int64_t panel = PackedWeights::panel_columns;
  return group.rows != ScaleGroup::whole && group.rows % panel == 0 && (alone || rows % panel == 0);
}

/// The format of a matrix, except for the number of groups if a group index defines them.
WeightFormat format_of(const WeightMatrix& matrix, DType plain) {
  WeightFormat format;
  format.type = matrix.quantized() ? packed_type(matrix.codes.type) : code_type(plain);
  if (has_groups(matrix)) {
    format.scale = matrix.scale.dtype;
    format.zero = matrix.zero.present();
    if (has_runs(matrix)) {
      format.group = group_columns(matrix);
      format.groups = quotient_up(matrix.columns(), format.group);
    }
  }
  return format;
}

}  // namespace

MatrixStack first_matrices(const ExpertMatrices& network) {
  return network.gate.present() ? MatrixStack{network.gate, network.up} : MatrixStack{network.up};
}

std::vector<HostMatrix> first_biases(const ExpertMatrices& network) {
  return network.gate.present() ? std::vector{network.gate_bias, network.up_bias} : std::vector{network.up_bias};
}

WeightFormat WeightFormat::of(const std::vector<MatrixStack>& stacks, DType plain) {
  WeightFormat all = format_of(stacks.front().front(), plain);
  bool indexed = false;
  all.panel_scales = all.groups > 0;
  for (const MatrixStack& stack : stacks)
    for (const WeightMatrix& matrix : stack) {
      const WeightFormat format = format_of(matrix, plain);
      require(format.type == all.type && format.scale == all.scale && format.zero == all.zero &&
                  has_groups(matrix) == has_groups(stacks.front().front()),
              "weights: expected one format, got {} and {}", all.describe(), format.describe());
      all.column_scale =
          all.column_scale || matrix.global_scale != 1 || (matrix.scale.present() && !has_groups(matrix));
      all.panel_scales = all.panel_scales && has_panel_scales(matrix.group, matrix.rows(), stack.size() == 1);
      indexed = indexed || (has_groups(matrix) && (format.group == 0 || format.group != all.group));
    }
  if (indexed) {
    all.group = all.groups = 0;
    for (const MatrixStack& stack : stacks) all.groups = std::max(all.groups, CommonGroups(stack).count());
  }
  return all;
}

WeightFormat WeightFormat::of(const OperandQuant& quantized, const MatrixStack& plain) {
  const WeightMatrix& first = plain.front();
  WeightFormat format;
  format.type = packed_type(*quantized.type);
  format.column_scale = quantized.scale == ScaleFormat::e4m3 || quantized.group.columns == ScaleGroup::whole;
  if (quantized.group.columns == ScaleGroup::whole) return format;
  format.group = quantized.group.columns;
  format.groups = quotient_up(first.columns(), format.group);
  format.panel_scales = has_panel_scales(quantized.group, first.rows(), plain.size() == 1);
  format.scale = quantized.scale == ScaleFormat::real   ? DType::f32
                 : quantized.scale == ScaleFormat::e8m0 ? DType::u8
                                                        : DType::f8_e4m3;
  return format;
}

bool WeightFormat::holds(WeightFormat other) const {
  other.column_scale = other.column_scale || column_scale;
  other.panel_scales = other.panel_scales && panel_scales;
  other.layout = layout;
  return other == *this;
}

std::uint64_t WeightFormat::size_bytes(std::int64_t n, std::int64_t k) const {
  const std::int64_t columns = PackedWeights::panels(n) * PackedWeights::panel_columns;
  std::uint64_t size = PackedWeights::size_bytes(type, 1, n, k) + static_cast<std::uint64_t>(column_scale ? 4 * n : 0);
  if (groups > 0)
    size += static_cast<std::uint64_t>(columns * groups) * (moecl::size_bytes(scale) + (zero ? 2 : 0)) +
            static_cast<std::uint64_t>(group == 0 ? 4 * k : 0);
  return size;
}

std::string WeightFormat::describe() const {
  std::string text = name(type);
  if (groups > 0)
    text += fmt::format(", {} scales {}", scale == DType::u8 ? "e8m0" : name(scale),
                        group > 0 ? fmt::format("of {} columns", group) : fmt::format("of {} groups by index", groups));
  if (zero) text += ", zero points";
  if (column_scale) text += ", scales of output channels";
  if (layout != PanelLayout::n_major) text += fmt::format(", {}", name(layout));
  return text;
}

std::string joined_formats(const std::string& gate_up, const std::string& down) {
  return gate_up == down ? gate_up : gate_up + "; down " + down;
}

CommonGroups::CommonGroups(const MatrixStack& stack) : sources(stack.size()) {
  std::map<std::vector<std::int64_t>, std::int32_t> numbers;
  const auto key = [&](std::int64_t k) {
    std::vector<std::int64_t> of_each;
    for (const WeightMatrix& matrix : stack) of_each.push_back(group_of(matrix, k));
    return of_each;
  };
  const std::int64_t columns = stack.front().columns();
  for (std::int64_t k = 0; k < columns; ++k) numbers.try_emplace(key(k), 0);
  std::int32_t next = 0;
  for (auto& [of_each, number] : numbers) {
    number = next++;
    for (std::size_t i = 0; i < stack.size(); ++i) sources[i].push_back(static_cast<std::int32_t>(of_each[i]));
  }
  for (std::int64_t k = 0; k < columns; ++k) index.push_back(numbers[key(k)]);
}

void expect_weights(const WeightMatrix& matrix, const char* what, std::int64_t rows, std::int64_t columns) {
  if (!matrix.quantized()) return expect_matrix(matrix.plain, what, rows, columns);
  require(matrix.rows() == rows && matrix.columns() == columns, "{}: expected [{}, {}], got [{}, {}] of {}", what, rows,
          columns, matrix.rows(), matrix.columns(), name(matrix.codes.type));
  const HostMatrix& scale = matrix.scale;
  if (!scale.present()) {
    require(!matrix.zero.present(), "{}: zero points without scales", what);
    return;
  }
  require(is_activation_dtype(scale.dtype) || scale.dtype == DType::f8_e4m3 || scale.dtype == DType::u8,
          "{}: expected scales of f32, f16, bf16, f8_e4m3 or e8m0 in u8, got {}", what, name(scale.dtype));
  const std::int64_t group_rows = matrix.group.rows == ScaleGroup::whole ? rows : matrix.group.rows,
                     group_k = group_columns(matrix);
  require(group_rows >= 1 && group_k >= 1, "{}: scales of [{}, {}] elements", what, group_rows, group_k);
  const std::int64_t of_rows = quotient_up(rows, group_rows), of_columns = quotient_up(columns, group_k);
  const std::vector<std::int32_t>& index = matrix.group_index;
  require(scale.rows == of_rows && (index.empty() ? scale.columns == of_columns : scale.columns >= 1),
          "{}: expected scales [{}, {}] of [{}, {}] elements each, got [{}, {}]", what, of_rows, of_columns, group_rows,
          group_k, scale.rows, scale.columns);
  if (matrix.zero.present())
    require(is_integer(matrix.codes.type) && is_integer(matrix.zero.type) && matrix.zero.rows == scale.rows &&
                matrix.zero.columns == scale.columns,
            "{}: expected integer zero points [{}, {}] as scales beside integers, got {} [{}, {}] beside {}", what,
            scale.rows, scale.columns, name(matrix.zero.type), matrix.zero.rows, matrix.zero.columns,
            name(matrix.codes.type));
  require(index.empty() || static_cast<std::int64_t>(index.size()) == columns,
          "{}: expected a group for each of {} columns, got {}", what, columns, index.size());
  for (std::size_t k = 0; k < index.size(); ++k)
    require(index[k] >= 0 && index[k] < scale.columns, "{}: group {} of column {} is not in [0, {})", what, index[k], k,
            scale.columns);
}

}  // namespace moecl
