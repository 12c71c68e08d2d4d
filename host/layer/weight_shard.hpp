#pragma once
// Parts of weight matrices in host memory, as views: nothing is copied.
#include <moecl/moe_weights.hpp>

#include "dispatch/share.hpp"

namespace moecl {

/// With their scales and zero points. Columns that a group index assigns to groups keep the scales of all.
/// Errors: invalid_argument  the part is not within the matrix, or splits a group of a quantized one
WeightMatrix rows_of(const WeightMatrix& matrix, Share part);
WeightMatrix columns_of(const WeightMatrix& matrix, Share part);

/// What parts of the intermediate size are multiples of, but for the last: so many rows of gate and up and columns of
/// down share scales. 1 when nothing does.
std::int64_t intermediate_unit(const ExpertMatrices& expert);

/// A part of the expert's intermediate size: rows of gate and up, columns of down; the first part has down's bias.
/// What all parts give sums up to what the expert gives. Errors: as above; invalid_argument  the matrices do not have
/// that intermediate size
ExpertMatrices intermediate_part(const ExpertMatrices& expert, std::int64_t intermediate, Share part);

}  // namespace moecl
