// Instructions that OpenCL C has no names for, on the host that is the device.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "bench/roof.hpp"

#ifdef __x86_64__
#include <immintrin.h>

namespace moecl::bench {
namespace {

constexpr int steps = 1'000'000, sums = 12;

__attribute__((target("avx512f,avx512vnni"))) void int8_products() {
  __m512i sum[sums];
  for (int i = 0; i < sums; ++i) sum[i] = _mm512_set1_epi32(i);
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-2);
  for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (__m512i& one : sum) {
      one = _mm512_dpbusd_epi32(one, a, b);
      asm volatile("" : "+v"(one));  // else the loop is computed by the compiler
    }
  }
}

__attribute__((target("avx512f,avx512bf16"))) void bf16_products() {
  __m512 sum[sums];
  for (int i = 0; i < sums; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80), b = (__m512bh)_mm512_set1_epi16(0x3a80);
  for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (__m512& one : sum) {
      one = _mm512_dpbf16_ps(one, a, b);
      asm volatile("" : "+v"(one));
    }
  }
}

/// On every thread at once, the best of a few rounds.
template <class Products>
double peak(Products products, double operations_of_step) {
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  double best = 0;
  for (int round = 0; round < 15; ++round) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> team;
    for (unsigned i = 0; i < threads; ++i) team.emplace_back(products);
    for (std::thread& thread : team) thread.join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, operations_of_step * sums * steps * threads / seconds);
  }
  return best;
}

}  // namespace

double host_int8_peak() { return __builtin_cpu_supports("avx512vnni") ? peak(int8_products, 2 * 64) : 0; }
double host_bf16_peak() { return __builtin_cpu_supports("avx512bf16") ? peak(bf16_products, 2 * 32) : 0; }

}  // namespace moecl::bench
#else
namespace moecl::bench {
double host_int8_peak() { return 0; }
double host_bf16_peak() { return 0; }
}  // namespace moecl::bench
#endif
