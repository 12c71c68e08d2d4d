#pragma once
#include <string>

namespace moecl {

/// Instruction sets of the host's CPU. AVX2 implies FMA and F16C.
struct CpuFeatures {
  bool avx2 = false, avx_vnni = false, avx512 = false, avx512_vnni = false, avx512_bf16 = false, amx_int8 = false,
       amx_bf16 = false;
  bool neon_dot = false, neon_i8mm = false, neon_bf16 = false;  ///< Arm's
  std::string hidden;                                           ///< names of the sets that MOECL_CPU_FEATURES hides
};

/// What cpuid or Linux reports, for kernels with vectors of `float_lanes` floats, less what MOECL_CPU_FEATURES hides.
///
/// Errors: invalid_argument  MOECL_CPU_FEATURES has a name of no known instruction set
CpuFeatures cpu_features(unsigned float_lanes);

}  // namespace moecl
