// The caller's own product between dispatch and combine. Two ranks bring tokens. moecl sends the tokens to the ranks of
// their experts, a kernel of this program multiplies them, and moecl brings the weighted sums back.
#include <moecl/context.hpp>
#include <moecl/opencl.hpp>
#include <moecl/strategy.hpp>

#include <stdexcept>

#include "example.hpp"

namespace {

constexpr std::int32_t ranks = 2, E = 6, K = 2;
constexpr std::int64_t T = 5, H = 32;  // tokens of each rank

/// Received row j is a row of the local expert e with row_ends[e - 1] <= j < row_ends[e].
const char* const source = R"(
kernel void multiply(global const float* x, int x_first, global const int* index, int index_first, int divisor,
                     global const int* row_ends, int row_ends_first, int experts, global const float* weights,
                     global float* out, int width) {
  const int column = get_global_id(0), row = get_global_id(1);
  int e = 0;
  while (e < experts && row >= row_ends[row_ends_first + e]) ++e;
  if (e == experts) return;  // there is room for more rows than came
  const int from = divisor != 0 ? index[index_first + row] / divisor : row;
  float sum = 0;
  for (int k = 0; k < width; ++k)
    sum += x[x_first + from * width + k] * weights[(e * width + column) * width + k];
  out[row * width + column] = sum;
})";

void check_cl(cl_int status) {
  if (status != CL_SUCCESS) throw std::runtime_error("OpenCL status " + std::to_string(status));
}

template <class... Values>
void set_args(cl_kernel kernel, const Values&... values) {
  cl_uint number = 0;
  (check_cl(clSetKernelArg(kernel, number++, sizeof(values), &values)), ...);
}

/// First element in the cl_mem: a tensor of moecl may begin anywhere in it. An absent tensor has no cl_mem.
cl_int first_of(const moecl::TensorView& view) {
  return view.present() ? static_cast<cl_int>(view.offset_elements()) : 0;
}

/// One rank's step. Returns the weighted sums of its tokens.
std::vector<float> step(moecl::Context& context, cl_program program, moecl::Communicator& world,
                        const std::vector<float>& x, const std::vector<std::int32_t>& ids,
                        const std::vector<float>& weights, const std::vector<float>& matrices) {
  const moecl::StreamView stream = world.stream();
  const moecl::ExpertRank rank(world, /*tp=*/1, E);
  moecl::ExpertProblem problem;
  problem.hidden = H;
  problem.top_k = K;
  const auto strategy = moecl::Strategy::make(moecl::StrategyKind::all2all_v, rank, problem);

  const moecl::DeviceTensor x_there(context, moecl::DType::f32, {T, H}), out(context, moecl::DType::f32, {T, H});
  const moecl::DeviceTensor ids_there(context, moecl::DType::i32, {T, K}),
      weights_there(context, moecl::DType::f32, {T, K});
  const moecl::DeviceTensor matrices_there(context, moecl::DType::f32, {rank.local_experts, H, H});
  write(stream, x_there, x);
  write(stream, ids_there, ids);
  write(stream, weights_there, weights);
  moecl::write_blocking(stream, matrices_there.buffer.view(),
                        &matrices[static_cast<std::size_t>(rank.first_expert * H * H)],
                        matrices_there.buffer.size_bytes());

  moecl::TokensIn tokens;
  tokens.x = x_there;
  tokens.ids = ids_there;
  tokens.weights = weights_there;
  const moecl::RoutedRows rows = strategy->dispatch(stream, tokens);
  const moecl::DeviceTensor results(context, moecl::DType::f32, {rows.rows, H});

  cl_int status = CL_SUCCESS;
  const cl_kernel kernel = clCreateKernel(program, "multiply", &status);
  check_cl(status);
  set_args(kernel, rows.x.buffer.handle, first_of(rows.x), rows.index.buffer.handle, first_of(rows.index),
           rows.index.present() ? rows.index_divisor : 0, rows.row_ends.buffer.handle, first_of(rows.row_ends),
           rank.local_experts, matrices_there.buffer.handle(), results.buffer.handle(), static_cast<cl_int>(H));
  const std::size_t items[] = {static_cast<std::size_t>(H), static_cast<std::size_t>(rows.rows)};
  if (rows.rows > 0)
    check_cl(clEnqueueNDRangeKernel(stream.queue, kernel, 2, nullptr, items, nullptr, 0, nullptr, nullptr));
  clReleaseKernel(kernel);

  strategy->combine(stream, results, out);
  return read<float>(stream, out);
}

double run() {
  const auto context = moecl::Context::create({moecl::select_devices().front()});
  cl_int status = CL_SUCCESS;
  const cl_program program =
      clCreateProgramWithSource(context->handle(), 1, const_cast<const char**>(&source), nullptr, &status);
  check_cl(status);
  check_cl(clBuildProgram(program, 0, nullptr, nullptr, nullptr, nullptr));

  const std::vector<float> matrices = random_values(static_cast<std::size_t>(E * H * H), 1);
  const moecl::Stream streams[ranks] = {moecl::Stream(*context), moecl::Stream(*context)};
  std::vector<double> errors(ranks);
  moecl::RankGroup group({streams[0], streams[1]});
  group.run([&](moecl::Communicator& world) {
    const auto r = static_cast<std::uint32_t>(world.rank());
    const std::vector<float> x = random_values(T * H, 10 + r), weights = random_values(T * K, 20 + r);
    std::vector<std::int32_t> ids;
    for (std::int32_t t = 0; t < T; ++t)
      ids.insert(ids.end(), {(t + world.rank()) % E, (3 * t + 1 + world.rank()) % E});

    std::vector<float> expected(x.size());
    for (std::size_t slot = 0; slot < ids.size(); ++slot)
      for (std::size_t n = 0; n < H; ++n)
        for (std::size_t k = 0; k < H; ++k)
          expected[slot / K * H + n] +=
              weights[slot] * x[slot / K * H + k] * matrices[(static_cast<std::size_t>(ids[slot]) * H + n) * H + k];
    errors[r] = relative_error(step(*context, program, world, x, ids, weights, matrices), expected);
  });
  clReleaseProgram(program);
  return std::max(errors[0], errors[1]);
}

}  // namespace

int main() { return run_example(1e-5, run); }
