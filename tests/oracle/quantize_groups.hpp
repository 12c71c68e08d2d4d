#pragma once
#include <moecl/quantize_groups.hpp>

#include <cstdint>
#include <vector>

namespace moecl::test::oracle {

/// One group by its definition, in the f32 arithmetic that the rules name: exact, not a tolerance.
struct QuantizedGroup {
  float scale = 0;              ///< what the codes count; of the rule e4m3 before it is divided by the global scale
  std::uint8_t scale_code = 0;  ///< e8m0, or of the rule e4m3 its code
  std::int32_t zero = 0;        ///< the code of 0, of the rule range
  std::vector<std::int32_t> codes;
  std::vector<float> values;  ///< what the codes stand for
};

/// @param scale  Of the rules `given` and `ratio_over_rows`, for which the latter takes that of all rows
QuantizedGroup quantize_group(const std::vector<float>& x, const quantize_groups::Args& rules, float scale = 0);

/// The scale of the rule `ratio`, of numbers with that largest magnitude.
float ratio_scale(float amax, const quantize_groups::Args& rules);

}  // namespace moecl::test::oracle
