#include "runtime/cpu_features.hpp"

#include <moecl/environment.hpp>

#ifdef __x86_64__
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "runtime/check.hpp"
#include "runtime/tile_registers.hpp"

namespace moecl {
namespace {

/// Instruction sets by the names of MOECL_CPU_FEATURES.
struct Feature {
  std::string_view name;
  bool CpuFeatures::*offered;
};
constexpr std::array<Feature, 10> features{{{"avx2", &CpuFeatures::avx2},
                                            {"avx_vnni", &CpuFeatures::avx_vnni},
                                            {"avx512", &CpuFeatures::avx512},
                                            {"avx512_vnni", &CpuFeatures::avx512_vnni},
                                            {"avx512_bf16", &CpuFeatures::avx512_bf16},
                                            {"amx_int8", &CpuFeatures::amx_int8},
                                            {"amx_bf16", &CpuFeatures::amx_bf16},
                                            {"neon_dot", &CpuFeatures::neon_dot},
                                            {"neon_i8mm", &CpuFeatures::neon_i8mm},
                                            {"neon_bf16", &CpuFeatures::neon_bf16}}};

/// The names in a comma-separated list.
std::vector<std::string> names_of(std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    names.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

#ifdef __x86_64__
/// Source: Intel SDM volume 2, CPUID leaf 7, subleaf 1
bool cpu_has_avx_vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 1U << 4) != 0;
}

/// clang 14's __builtin_cpu_supports does not know it. Source: Intel SDM volume 2, CPUID leaf 1
bool cpu_has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & 1U << 29) != 0;
}

CpuFeatures offered(unsigned float_lanes) {
  CpuFeatures cpu;
  __builtin_cpu_init();
  cpu.avx2 =
      float_lanes >= 8 && __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && cpu_has_f16c();
  cpu.avx_vnni = cpu.avx2 && cpu_has_avx_vnni();
  cpu.avx512 = cpu.avx2 && float_lanes >= 16 && __builtin_cpu_supports("avx512bw") != 0;
  cpu.avx512_vnni = cpu.avx512 && __builtin_cpu_supports("avx512vnni") != 0;
  cpu.avx512_bf16 =
      cpu.avx512 && __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vbmi") != 0;
  const TileProducts tiles = cpu.avx512 ? allow_tile_registers() : TileProducts();
  cpu.amx_int8 = tiles.int8 && cpu.avx512_vnni;
  cpu.amx_bf16 = tiles.bf16 && cpu.avx512_bf16;
  return cpu;
}
#elif defined(__aarch64__)
/// Source: Linux, Documentation/arch/arm64/elf_hwcaps.rst, HWCAP_ASIMDDP, HWCAP2_I8MM and HWCAP2_BF16
CpuFeatures offered(unsigned) {
  CpuFeatures cpu;
  cpu.neon_dot = (getauxval(AT_HWCAP) & 1UL << 20) != 0;
  cpu.neon_i8mm = cpu.neon_dot && (getauxval(AT_HWCAP2) & 1UL << 13) != 0;
  cpu.neon_bf16 = (getauxval(AT_HWCAP2) & 1UL << 14) != 0;
  return cpu;
}
#else
CpuFeatures offered(unsigned) { return {}; }
#endif

}  // namespace

CpuFeatures cpu_features(unsigned float_lanes) {
  CpuFeatures cpu = offered(float_lanes);
  const std::optional<std::string> named = environment("MOECL_CPU_FEATURES");
  if (!named) return cpu;
  const std::vector<std::string> allowed = names_of(*named);
  for (const std::string& name : allowed)
    require(std::any_of(features.begin(), features.end(), [&](const Feature& one) { return one.name == name; }),
            "MOECL_CPU_FEATURES: expected names of avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, amx_int8, "
            "amx_bf16, neon_dot, neon_i8mm and neon_bf16 between commas, got '{}'",
            *named);
  for (const Feature& one : features)
    if (cpu.*one.offered && std::find(allowed.begin(), allowed.end(), one.name) == allowed.end()) {
      cpu.*one.offered = false;
      cpu.hidden += fmt::format("{}{}", cpu.hidden.empty() ? "" : ", ", one.name);
    }
  return cpu;
}

}  // namespace moecl
