// Peak rates of instructions that OpenCL C has no names for, measured on the host, where the host is the device.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "bench/roof.hpp"

namespace moecl::bench {

#ifdef __x86_64__
namespace {

constexpr int steps = 1'000'000, sums = 12;

// The sums stay in registers 0 to 11; their values do not matter.
#define EACH_SUM(instructions)                                                                                         \
  asm volatile(".irp i,0,1,2,3,4,5,6,7,8,9,10,11\n" instructions "\n.endr" ::                                          \
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
                     "xmm14")

void int8_products() {
  for (int step = 0; step < steps; ++step) EACH_SUM("vpdpbusd %%zmm12, %%zmm13, %%zmm\\i");
}
void bf16_products() {
  for (int step = 0; step < steps; ++step) EACH_SUM("vdpbf16ps %%zmm12, %%zmm13, %%zmm\\i");
}
void short_int8_products() {
  for (int step = 0; step < steps; ++step) EACH_SUM("%{vex%} vpdpbusd %%ymm12, %%ymm13, %%ymm\\i");
}
// For hosts without dot products: pairs of 16-bit integers, exact for all codes.
void wide_int8_pairs() {
  for (int step = 0; step < steps; ++step)
    EACH_SUM("vpmaddwd %%zmm12, %%zmm13, %%zmm14\nvpaddd %%zmm14, %%zmm\\i, %%zmm\\i");
}
void int8_pairs() {
  for (int step = 0; step < steps; ++step)
    EACH_SUM("vpmaddwd %%ymm12, %%ymm13, %%ymm14\nvpaddd %%ymm14, %%ymm\\i, %%ymm\\i");
}

// Eight tile registers of 16 rows of 64 bytes: sums in 0 to 3, operands in 4 to 7.
struct TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
#define TILE_PRODUCTS(instruction)                                                                     \
  const TileShapes shapes;                                                                             \
  asm volatile("ldtilecfg %0" ::"m"(shapes));                                                          \
  for (int step = 0; step < steps; ++step)                                                             \
    asm volatile(instruction " %tmm6, %tmm4, %tmm0\n" instruction " %tmm7, %tmm4, %tmm1\n" instruction \
                             " %tmm6, %tmm5, %tmm2\n" instruction " %tmm7, %tmm5, %tmm3");             \
  asm volatile("tilerelease")
void int8_tiles() { TILE_PRODUCTS("tdpbssd"); }
void bf16_tiles() { TILE_PRODUCTS("tdpbf16ps"); }

/// The best rate of several rounds, with all threads busy at once.
double peak(void (*products)(), double operations) {
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  double best = 0;
  for (int round = 0; round < 15; ++round) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> team;
    for (unsigned i = 0; i < threads; ++i) team.emplace_back(products);
    for (std::thread& thread : team) thread.join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, operations * steps * threads / seconds);
  }
  return best;
}

}  // namespace

double host_int8_peak(const DeviceCaps& caps) {
  if (caps.has_amx_int8) return peak(int8_tiles, 4 * 2 * 16 * 16 * 64);
  if (caps.has_avx512_vnni) return peak(int8_products, sums * 2 * 64);
  if (caps.has_avx512) return peak(wide_int8_pairs, sums * 2 * 32);
  if (caps.has_avx_vnni) return peak(short_int8_products, sums * 2 * 32);
  return caps.has_avx2 ? peak(int8_pairs, sums * 2 * 16) : 0;
}
double host_bf16_peak(const DeviceCaps& caps) {
  if (caps.has_amx_bf16) return peak(bf16_tiles, 4 * 2 * 16 * 16 * 32);
  return caps.has_avx512_bf16 ? peak(bf16_products, sums * 2 * 32) : 0;
}
#else
double host_int8_peak(const DeviceCaps&) { return 0; }
double host_bf16_peak(const DeviceCaps&) { return 0; }
#endif

}  // namespace moecl::bench
