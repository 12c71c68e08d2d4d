#pragma once
// The steps of the matmul operators beyond a grouped product (tests/oracle/grouped_gemm.hpp), in double precision.
#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

/// Transposes [E, K, N] to [E, N, K].
std::vector<double> columns_of(const std::vector<double>& weights, std::int64_t k, std::int64_t n);

/// (code + offset) * scale of [E, K, N] codes, scale and offset (may be empty) [E, G, N].
std::vector<double> dequantized(const std::vector<double>& codes, std::int64_t k, std::int64_t n, std::int64_t groups,
                                const std::vector<double>& scale, const std::vector<double>& offset);

/// What the device's two int4 products see of an int8 number: 16 times its high nibble, and its low nibble less 8.
double nibbles(double x);

struct SwigluQuant {
  std::vector<double> quotients;  ///< [R, N / 2]: the codes before they are rounded
  std::vector<double> scale;      ///< [R]
};
/// silu(gate) * up of rows [gate | up], times smooth [R, N / 2] if given. limit > 0 clamps both gate and up. Then x /
/// scale, with scale = the row's largest magnitude / 127. A row of zeros gives zeros.
SwigluQuant swiglu_quant(const std::vector<double>& rows, std::int64_t n, double limit,
                         const std::vector<double>& smooth);

/// y[destination[j]] += weight[j] * rows[j], into y [T, N].
void scatter_add(const std::vector<double>& rows, const std::vector<double>& destinations,
                 const std::vector<double>& weights, std::int64_t count, std::int64_t n, std::vector<double>& y);

/// act_type of npu_grouped_matmul.
double activation(std::int64_t act_type, double x);

}  // namespace moecl::test::oracle
