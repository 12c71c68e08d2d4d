#pragma once
#include <moecl/quantize_groups.hpp>

#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

/// One group by definition, in the f32 arithmetic that the rules name. The comparison is exact, without tolerance.
struct QuantizedGroup {
  float scale = 0;              ///< the unit of the codes; rule e4m3: before division by the global scale
  std::uint8_t scale_code = 0;  ///< the scale as e8m0; rule e4m3: as e4m3
  std::int32_t zero = 0;        ///< rule range: the code of 0
  std::vector<std::int32_t> codes;
  std::vector<float> values;  ///< what the codes stand for
};

/// @param scale  for the rules `given` and `ratio_over_rows`; the latter takes the scale of all rows
QuantizedGroup quantize_group(const std::vector<float>& x, const quantize_groups::Args& rules, float scale = 0);

/// The scale that the rule `ratio` gives numbers of that largest magnitude.
float ratio_scale(float amax, const quantize_groups::Args& rules);

}  // namespace moecl::test::oracle
