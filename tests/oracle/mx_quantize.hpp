#pragma once
#include <moecl/mx_quantize.hpp>

#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

/// The code of a finite number, by a search among all numbers of the format. Too large numbers saturate.
std::uint8_t minifloat_code(double x, const Minifloat& format,
                            mx_quantize::Rounding rounding = mx_quantize::Rounding::halves_to_even);

struct MxBlock {
  std::uint8_t scale = 0;
  std::vector<std::uint8_t> codes;
};

/// One block by definition: a search among all numbers of the format. The comparison is exact, without tolerance.
MxBlock mx_quantize_block(const std::vector<double>& x, const mx_quantize::Args& rules);

/// Outputs of a whole tensor [rows, length, inner]: bytes of y and scale as mx_quantize::Args lays them out.
struct MxTensor {
  std::vector<std::uint8_t> y, scale;
};
MxTensor mx_quantize(const std::vector<double>& x, std::int64_t length, std::int64_t inner,
                     const mx_quantize::Args& rules);

}  // namespace moecl::test::oracle
