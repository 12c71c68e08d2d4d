#pragma once
#include <cstddef>
#include <vector>

namespace moecl::test::oracle {

/// [rows, K] as panels of 64 rows, [ceil(rows / 64)][K][64], padded with zero.
std::vector<double> pack_weights(const std::vector<double>& matrix, std::size_t k);

}  // namespace moecl::test::oracle
