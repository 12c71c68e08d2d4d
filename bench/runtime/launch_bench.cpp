#include <moecl/opencl.hpp>

#include <ctime>

#include "bench/device_time.hpp"
#include "runtime/check.hpp"
#include "runtime/kernel.hpp"

namespace moecl::bench {
namespace {

struct IdleArgs {
  std::int64_t c;
  std::int32_t a, b;
  float d, pad;
};
const ProgramSource idle{"idle", R"(
typedef struct { long c; int a, b; float d, pad; } idle_args;
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void idle(__global int* x, __global int* y, const idle_args given) {})"};

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

/// Processor time that one enqueue costs the host thread, in chains of 64; the finish is not counted.
template <class Enqueue>
void measure_enqueue(benchmark::State& state, Enqueue enqueue) {
  constexpr int chain = 64;
  enqueue();
  stream().finish();
  for (auto _ : state) {
    const double start = thread_seconds();
    for (int i = 0; i < chain; ++i) enqueue();
    state.SetIterationTime((thread_seconds() - start) / chain);
    stream().finish();
  }
}

/// The floor: the same OpenCL calls on one kernel object.
void raw(benchmark::State& state) {
  const char* text = idle.text.data();
  cl_int status = CL_SUCCESS;
  cl_program program = clCreateProgramWithSource(stream().context->handle(), 1, &text, nullptr, &status);
  check_cl(clBuildProgram(program, 0, nullptr, "-cl-std=CL1.2", nullptr, nullptr), "clBuildProgram");
  cl_kernel kernel = clCreateKernel(program, "idle", &status);
  check_cl(status, "clCreateKernel");
  const Buffer memory(*stream().context, 64);
  cl_mem handle = memory.handle();
  measure_enqueue(state, [&] {
    const IdleArgs given{1, 1, 1, 1, 0};
    clSetKernelArg(kernel, 0, sizeof(handle), &handle);
    clSetKernelArg(kernel, 1, sizeof(handle), &handle);
    clSetKernelArg(kernel, 2, sizeof(given), &given);
    const std::size_t size[3] = {1, 1, 1};
    check_cl(clEnqueueNDRangeKernel(stream().queue, kernel, 3, nullptr, size, size, 0, nullptr, nullptr), "launch");
  });
  clReleaseKernel(kernel);
  clReleaseProgram(program);
}
BENCHMARK(raw)->Name("launch/raw_opencl")->UseManualTime()->Iterations(500);

void bare(benchmark::State& state) {
  const Buffer memory(*stream().context, 64);
  const TensorView view(memory.view(), DType::i32, {4, 4});
  const KernelKey key{&idle, "", "idle"};
  measure_enqueue(state, [&] {
    launch(stream(), key, {}, {}, {"idle", "row_per_item", "", 1, 1}, view, view, IdleArgs{1, 1, 1, 1, 0});
  });
}
BENCHMARK(bare)->Name("launch/moecl")->UseManualTime()->Iterations(500);

}  // namespace
}  // namespace moecl::bench
