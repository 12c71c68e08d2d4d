#pragma once
// Quantized weights as the C interface describes them.
#include <moecl/moe_weights.hpp>

#include "host/c_api/c_api.hpp"

namespace moecl::c_api {

/// Which rows of an expert's matrix: [first, first + count * step), every `step`-th.
struct RowRange {
  std::int64_t first, count, step = 1;
};

/// A view of these rows of one expert's matrix [rows, columns]; absent when the array is absent.
/// Errors: invalid_argument  an impossible type, group or layout; `what` names the array
WeightMatrix quantized_matrix(const moecl_quantized_array& array, const char* what, std::int64_t expert,
                              std::int64_t rows, std::int64_t columns, RowRange range);
/// The static scale of an expert's input; 0: there is none.
float input_scale(const moecl_quantized_array& array, std::int64_t expert);

/// Errors: invalid_argument
OperandQuant operand_quant(const moecl_operand_quant& from, const char* what);

}  // namespace moecl::c_api
