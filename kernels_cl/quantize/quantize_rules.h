#pragma once
#include "kernels_cl/common/kernel_args.h"

// The values of quantize_groups::ScaleRule, Quotient and Rounding for kernels.
enum {
  RULE_RATIO,
  RULE_POWER_OF_TWO,
  RULE_MX_FLOOR,  // up to RULE_MX_UP: in the order of block_scale's rules
  RULE_MX_CEIL,
  RULE_MX_EVEN,
  RULE_MX_NEAREST,
  RULE_MX_UP,
  RULE_E4M3,
  RULE_RANGE,
  RULE_RATIO_OVER_ROWS,
  RULE_GIVEN
};
enum { QUOTIENT_DIVIDE, QUOTIENT_RECIPROCAL, QUOTIENT_LARGEST_BY_AMAX };
enum { ROUND_HALVES_TO_EVEN, ROUND_HALVES_AWAY, ROUND_TOWARD_ZERO };

// How numbers become codes. bits: of a floating-point format, 0 for integers. largest: the format's largest number.
typedef struct {
  int bits, mantissa_bits, min_exponent, largest_code, rule, quotient, rounding;
  float largest, least_amax, most_amax, least_scale, global_scale;
} quantize_rules;
KERNEL_ARGS(quantize_rules, 48);
