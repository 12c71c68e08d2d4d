#include <moecl/opencl.hpp>

#include "bench/device_time.hpp"
#include "bench/host_time.hpp"
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
