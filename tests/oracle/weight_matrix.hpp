#pragma once
// Decodes the elements of a weight matrix on the host, in double precision.
#include <moecl/moe_weights.hpp>

#include <cstdint>

namespace moecl::test {

double matrix_element(const HostMatrix& matrix, std::int64_t row, std::int64_t column);
/// The matrix with all its bytes in memory. Otherwise each element would be read from the file.
WeightMatrix in_memory(WeightMatrix matrix);
/// (code - zero) * scale * global scale, whatever the packing.
double weight_element(const WeightMatrix& matrix, std::int64_t row, std::int64_t column);

}  // namespace moecl::test
