#pragma once
// Parts of weight matrices in host memory, as views. Nothing is copied.
#include <moecl/moe_weights.hpp>

#include "dispatch/share.hpp"

namespace moecl {

/// Rows or columns of a matrix, with their scales and zero points. With a group index, columns keep all scales.
/// Errors: invalid_argument  the part is not within the matrix, or splits a scale group of a quantized matrix
WeightMatrix rows_of(const WeightMatrix& matrix, Share part);
WeightMatrix columns_of(const WeightMatrix& matrix, Share part);

/// Parts of the intermediate size must be multiples of this unit, except the last part: rows of gate and up, and
/// columns of down, share scales in such groups. 1 if nothing shares scales.
std::int64_t intermediate_unit(const ExpertMatrices& expert);

/// A part of the expert's intermediate size: rows of gate and up, columns of down. Only the first part has down's bias.
/// The results of all parts add up to the expert's result. Errors: as above; invalid_argument  the matrices have
/// another intermediate size
ExpertMatrices intermediate_part(const ExpertMatrices& expert, std::int64_t intermediate, Share part);

}  // namespace moecl
