#pragma once
#include <moecl/quant_scheme.hpp>

#include <cstdint>
#include <string_view>

namespace moecl {

/// How the rows of a layer travel between ranks.
enum class WireFormat : std::uint8_t {
  none,  ///< hidden states in their own type, the experts' rows in f32
  int8,  ///< hidden states as codes with a scale a row; MC2 also brings rows back as codes, a scale for each 8 columns
  fp8,   ///< hidden states as f8_e4m3 with a scale a row; rows come back in f32
  mxfp8  ///< hidden states as f8_e4m3 with an e8m0 scale for each 32 columns; rows come back in f32
};
/// "none", "int8", "fp8", "mxfp8"
const char* name(WireFormat format) noexcept;
/// Errors: invalid_argument  no format of that name
WireFormat wire_format_from_name(std::string_view text);
/// The codes that hidden states travel as; of `none` they are plain.
OperandQuant codes_of(WireFormat format);
/// Whether codes of `how` can travel so: like those of `codes_of` but for the rule and limits of their scales.
bool goes_as(WireFormat format, const OperandQuant& how);

}  // namespace moecl
