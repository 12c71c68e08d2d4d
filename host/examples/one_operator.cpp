// One operator alone: rows of a matrix, picked by index on the first usable device.
#include <moecl/context.hpp>
#include <moecl/gather_rows.hpp>

#include "example.hpp"

int main() {
  return run_example(0, [] {
    const auto context = moecl::Context::create({moecl::select_devices().front()});
    const moecl::Stream stream(*context);
    const moecl::DeviceTensor x(*context, moecl::DType::f32, {3, 2});
    const moecl::DeviceTensor index(*context, moecl::DType::i32, {2});
    const moecl::DeviceTensor out(*context, moecl::DType::f32, {2, 2});
    write<float>(stream, x, {1, 2, 3, 4, 5, 6});
    write<std::int32_t>(stream, index, {2, 0});

    moecl::gather_rows::Args args;
    args.x = x;
    args.index = index;
    args.out = out;
    moecl::gather_rows::enqueue(stream, args);
    return relative_error(read<float>(stream, out), {5, 6, 1, 2});
  });
}
