// Uses one operator of moecl from C++17: rows of a small matrix, picked by index on the first usable OpenCL device.
#include <moecl/buffer.hpp>
#include <moecl/context.hpp>
#include <moecl/device.hpp>
#include <moecl/error.hpp>
#include <moecl/gather_rows.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  try {
    const auto context = moecl::Context::create({moecl::select_devices().front()});
    const moecl::Stream stream(*context);
    const std::vector<float> x = {1, 2, 3, 4, 5, 6};
    const std::vector<std::int32_t> index = {2, 0};
    const moecl::Buffer x_memory(*context, 24), index_memory(*context, 8), out_memory(*context, 16);
    moecl::write_blocking(stream, x_memory.view(), x.data(), 24);
    moecl::write_blocking(stream, index_memory.view(), index.data(), 8);

    moecl::gather_rows::Args args;
    args.x = {x_memory.view(), moecl::DType::f32, {3, 2}};
    args.index = {index_memory.view(), moecl::DType::i32, {2}};
    args.out = {out_memory.view(), moecl::DType::f32, {2, 2}};
    moecl::gather_rows::enqueue(stream, args);

    std::vector<float> out(4);
    moecl::read_blocking(stream, out_memory.view(), out.data(), 16);
    std::printf("%s: %g %g %g %g\n", context->devices().front().caps.name.c_str(), out[0], out[1], out[2], out[3]);
    return out == std::vector<float>{5, 6, 1, 2} ? 0 : 1;
  } catch (const moecl::Error& error) {
    std::fprintf(stderr, "%s: %s\n", moecl::to_string(error.code()), error.what());
    return 1;
  }
}
