#include <moecl/quant_scheme.hpp>

namespace moecl {
namespace {

std::int64_t groups(std::int64_t extent, std::int64_t group) {
  return group == ScaleGroup::whole ? 1 : (extent + group - 1) / group;
}

}  // namespace

std::vector<std::int64_t> scale_shape(const OperandQuant& operand, std::int64_t rows, std::int64_t columns) {
  if (!operand.quantized()) return {};
  return {groups(rows, operand.group.rows), groups(columns, operand.group.columns)};
}

std::vector<std::int64_t> batched_scale_shape(const OperandQuant& operand, std::int64_t experts, std::int64_t rows,
                                              std::int64_t columns) {
  std::vector<std::int64_t> shape = scale_shape(operand, rows, columns);
  if (!shape.empty()) shape.insert(shape.begin(), experts);
  return shape;
}

}  // namespace moecl
