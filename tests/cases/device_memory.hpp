#pragma once
// Moves values between host vectors of double and device tensors of any storage type.
#include <moecl/device_tensor.hpp>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace moecl::test {

/// `values` as raw bytes of `dtype`; and back.
std::vector<unsigned char> encode(DType dtype, const std::vector<double>& values);
std::vector<double> decode(DType dtype, const std::vector<unsigned char>& bytes);
/// Values rounded to the storage type and back: what a device of that storage type sees.
std::vector<double> rounded(DType dtype, const std::vector<double>& values);
/// Standard normal values, the same for a seed everywhere.
std::vector<double> normal(std::size_t count, std::uint64_t seed);

/// One whose elements are written and read as double, rounded to its storage type.
struct DeviceTensor : moecl::DeviceTensor {
  DeviceTensor(StreamView stream, DType dtype, std::initializer_list<std::int64_t> shape);
  DeviceTensor(StreamView stream, DType dtype, std::initializer_list<std::int64_t> shape,
               const std::vector<double>& values);
  /// Stops the host.
  std::vector<double> values(StreamView stream) const;
};

/// Largest |a - b| over the largest |b|; infinity where sizes differ or `a` has a NaN; 0 for empty.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace moecl::test
