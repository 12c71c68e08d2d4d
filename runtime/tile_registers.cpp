#include "runtime/tile_registers.hpp"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace moecl {

TileProducts allow_tile_registers() {
#if defined(__x86_64__) && defined(__linux__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned bf16 = 1U << 22, tiles = 1U << 24, int8 = 1U << 25;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & tiles) == 0) return {};
  // Refused where the kernel is older than 5.16, saves no tiles, or a thread's alternate signal stack is too small.
  constexpr long request_permission = 0x1023, tile_data = 18;
  if (syscall(SYS_arch_prctl, request_permission, tile_data) != 0) return {};
  return {(edx & int8) != 0, (edx & bf16) != 0};
#else
  return {};
#endif
}

}  // namespace moecl
