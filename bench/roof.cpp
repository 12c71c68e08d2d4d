#include "bench/roof.hpp"

#include <moecl/buffer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "bench/device.hpp"
#include "runtime/kernel.hpp"

namespace moecl::bench {
namespace {

// On a CPU each work-item walks memory by itself; on a GPU the work-items of a group read side by side.
const ProgramSource source{"roof", R"(
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define VLOAD JOIN(vload, WIDTH)
#if WIDTH == 1
#define V float
#define FIRST(v) (v)
#else
#define V JOIN(float, WIDTH)
#define FIRST(v) (v).s0
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void multiply_adds(__global float* out, int steps, float x, float y) {
  V a = x, b = x + 1, c = x + 2, d = x + 3, e = x + 4, f = x + 5, g = x + 6, h = x + 7, i = x + 8, j = x + 9, k = x + 10, l = x + 11;
  const V p = x, q = y;
  for (int step = 0; step < steps; ++step) {
    a = fma(a, p, q); b = fma(b, p, q); c = fma(c, p, q); d = fma(d, p, q); e = fma(e, p, q); f = fma(f, p, q);
    g = fma(g, p, q); h = fma(h, p, q); i = fma(i, p, q); j = fma(j, p, q); k = fma(k, p, q); l = fma(l, p, q);
  }
  const V sum = a + b + c + d + e + f + g + h + i + j + k + l;
  out[get_global_id(0)] = FIRST(sum);
}

#define M JOIN(float, MEMORY_WIDTH)
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void read_all(__global const M* x, __global float* out) {
  const size_t begin = get_group_id(0) * CHUNK + get_local_id(0);
  M a = 0, b = 0, c = 0, d = 0;
  for (int i = 0; i < CHUNK; i += 4 * ITEMS) {
    a += x[begin + i]; b += x[begin + i + ITEMS]; c += x[begin + i + 2 * ITEMS]; d += x[begin + i + 3 * ITEMS];
  }
  a += b + c + d;
#if MEMORY_WIDTH == 16
  const float8 s8 = a.lo + a.hi;
  const float4 s = s8.lo + s8.hi;
#else
  const float4 s = a;
#endif
  out[get_global_id(0)] = s.s0 + s.s1 + s.s2 + s.s3;
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void copy(__global const M* x, __global M* out) {
  const size_t begin = get_group_id(0) * CHUNK + get_local_id(0);
  for (int i = 0; i < CHUNK; i += ITEMS) {
#ifdef __clang__
    __builtin_nontemporal_store(x[begin + i], out + begin + i);
#else
    out[begin + i] = x[begin + i];
#endif
  }
})"};

constexpr std::size_t vectors_of_group = 4096;

/// How the device is filled: work-items per group, groups, lanes per vector, and steps for about a millisecond.
struct Shape {
  std::size_t items, groups;
  std::uint32_t width, memory_width;  // vectors' lanes: in multiplications, and in reads
  std::int32_t steps;
  std::string options;

  explicit Shape(const DeviceCaps& caps) {
    const bool cpu = caps.type == DeviceType::cpu;
    items = cpu ? 1 : 256;
    groups = static_cast<std::size_t>(caps.compute_units) * (cpu ? 4 : 32);
    memory_width = cpu ? 16 : 4;
    width = cpu ? std::clamp(caps.preferred_float_width, 4U, 16U) : 1;
    steps = cpu ? 200'000 : 4096;
    options =
        fmt::format("-DWIDTH={} -DMEMORY_WIDTH={} -DITEMS={} -DCHUNK={}", width, memory_width, items, vectors_of_group);
  }
};

/// The best of several calls: disturbances only make calls longer.
template <class Enqueue>
double best_seconds(Enqueue enqueue) {
  double best = 1e9;
  for (int i = 0; i < 7; ++i) {
    const auto start = std::chrono::steady_clock::now();
    enqueue();
    stream().finish();
    if (i > 0) best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

double multiply_adds(const Shape& shape, std::size_t groups) {
  const std::size_t items = groups * shape.items;
  const Buffer memory(*stream().context, items * 4);
  const TensorView out(memory.view(), DType::f32, {static_cast<std::int64_t>(items)});
  const double seconds = best_seconds([&] {
    launch(stream(), {&source, shape.options, "multiply_adds"}, {{items, 1, 1}, {shape.items, 1, 1}}, {},
           {"roof", "multiply_adds", "", 0, 0}, out, shape.steps, 0.999F, 0.001F);
  });
  return 2.0 * 12 * shape.width * shape.steps * static_cast<double>(items) / seconds;
}

void measure_f32(Roof& roof) {
  const DeviceCaps& caps = stream().device->caps;
  const Shape shape(caps);
  roof.f32 = multiply_adds(shape, shape.groups);
  if (caps.type != DeviceType::cpu) return;
  roof.f32_one_unit = multiply_adds(shape, 1);
  roof.slow_mode = roof.f32 < 0.75 * roof.f32_one_unit * caps.compute_units;
}

void measure_memory(Roof& roof) {
  const DeviceCaps& caps = stream().device->caps;
  const Shape shape(caps);
  const std::uint64_t group_bytes = shape.memory_width * sizeof(float) * vectors_of_group;
  const std::uint64_t bytes = (caps.type == DeviceType::cpu ? 256ULL << 20 : 2ULL << 30) / group_bytes * group_bytes;
  const std::size_t groups = bytes / group_bytes, items = groups * shape.items;
  const Buffer from(*stream().context, bytes), to(*stream().context, bytes);
  enqueue_fill(stream(), from.view(), 0x3f800000);
  const auto run = [&](const char* kernel) {
    const TensorView x(from.view(), DType::f32, {static_cast<std::int64_t>(bytes / 4)}),
        out(to.view(), DType::f32, {static_cast<std::int64_t>(bytes / 4)});
    return best_seconds([&] {
      launch(stream(), {&source, shape.options, kernel}, {{items, 1, 1}, {shape.items, 1, 1}}, {},
             {"roof", kernel, "", 0, 0}, x, out);
    });
  };
  roof.read = static_cast<double>(bytes) / run("read_all");
  roof.copy = 2 * static_cast<double>(bytes) / run("copy");
}

Roof measure_roof() {
  Roof roof;
  measure_f32(roof);
  measure_memory(roof);
  if (const DeviceCaps& caps = stream().device->caps; caps.type == DeviceType::cpu) {
    // Without such instructions bf16 and int8 products are computed as f32 ones.
    roof.bf16 = std::max(host_bf16_peak(caps), roof.f32);
    roof.int8 = std::max(host_int8_peak(caps), roof.f32);
  }
  return roof;
}

}  // namespace

double Roof::seconds(const OperatorCost& cost, Bound bound) const {
  const double operations = bound.arithmetic == Arithmetic::f32    ? f32
                            : bound.arithmetic == Arithmetic::bf16 ? bf16
                                                                   : int8;
  const double bandwidth = bound.reads ? read : copy;
  if (operations == 0 || bandwidth == 0) return 0;
  return std::max(static_cast<double>(cost.flops) / operations, static_cast<double>(cost.bytes) / bandwidth);
}

const Roof& roof() {
  static const Roof measured = measure_roof();
  return measured;
}

bool slow_now() {
  Roof now;
  measure_f32(now);
  return now.slow_mode;
}

}  // namespace moecl::bench
