#pragma once
// Parts of weight matrices in host memory, as views: nothing is copied.
#include <moecl/moe_weights.hpp>

#include "dispatch/share.hpp"

namespace moecl {

/// Errors: invalid_argument  the part is not within the matrix; unsupported  the matrix is quantized
WeightMatrix rows_of(const WeightMatrix& matrix, Share part);
WeightMatrix columns_of(const WeightMatrix& matrix, Share part);

/// A part of the expert's intermediate size: rows of gate and up, columns of down. What all parts give sums up to what
/// the expert gives. Errors: as above; invalid_argument  the matrices do not have that intermediate size
ExpertMatrices intermediate_part(const ExpertMatrices& expert, std::int64_t intermediate, Share part);

}  // namespace moecl
