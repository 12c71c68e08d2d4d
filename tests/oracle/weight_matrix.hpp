#pragma once
// What an element of a weight matrix on the host means, in double precision.
#include <moecl/moe_weights.hpp>

#include <cstdint>

namespace moecl::test {

double matrix_element(const HostMatrix& matrix, std::int64_t row, std::int64_t column);
/// With all its bytes in memory: a file would be asked for each element.
WeightMatrix in_memory(WeightMatrix matrix);
/// (code - zero) * scale * global scale, whatever the packing.
double weight_element(const WeightMatrix& matrix, std::int64_t row, std::int64_t column);

}  // namespace moecl::test
