#pragma once
// Values of tensors in files, as the command line needs them.
#include <moecl/host_tensor.hpp>

#include <cstdint>
#include <vector>

namespace moecl::cli {

/// Elements of an f64, f32, f16, bf16, i32, i64 or u8 tensor. Errors: invalid_data  another dtype
std::vector<float> to_f32(const HostTensor& tensor);
/// Values rounded to nearest even in `dtype` (f32, f16 or bf16), as raw bytes.
std::vector<std::byte> encode(const std::vector<float>& values, DType dtype);
/// Standard normal values.
std::vector<float> random_normal(std::size_t count, std::uint64_t seed);

}  // namespace moecl::cli
