#pragma once
// Moves values between host vectors of double and device tensors of any storage type.
#include <moecl/buffer.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace moecl::test {

/// `values` as raw bytes of `dtype`; and back.
std::vector<unsigned char> encode(DType dtype, const std::vector<double>& values);
std::vector<double> decode(DType dtype, const std::vector<unsigned char>& bytes);
/// Values rounded to the storage type and back: what a device sees of them when they are stored as `dtype`.
std::vector<double> rounded(DType dtype, const std::vector<double>& values);
/// Standard normal values. A seed gives the same values everywhere.
std::vector<double> normal(std::size_t count, std::uint64_t seed);

/// Whether the memory around a tensor is checked for writes.
enum class Guards : bool { none, around };

/// A contiguous tensor in memory of its own, whose elements are written and read as double, rounded to its storage
/// type.
struct DeviceTensor {
  Buffer buffer;
  TensorView view;

  /// With guards, the tensor begins at an odd element of a bigger, poisoned buffer. Without, its content is undefined.
  DeviceTensor(StreamView stream, DType dtype, std::initializer_list<std::int64_t> shape, Guards guards = Guards::none);
  DeviceTensor(StreamView stream, DType dtype, std::initializer_list<std::int64_t> shape,
               const std::vector<double>& values, Guards guards = Guards::none);
  operator TensorView() const noexcept { return view; }

  /// Fills its elements and its guards with half-words 0x7fc1: NaN in f32, f16 and bf16.
  void poison(StreamView stream) const;
  /// Whether the bytes of that element are those of the poison.
  bool is_poison(std::size_t element, const std::vector<unsigned char>& bytes) const;
  /// Stops the host.
  std::vector<double> values(StreamView stream) const;

  struct Content {
    std::vector<unsigned char> bytes;
    std::string damage;  ///< describes writes around the tensor; empty if there were none
  };
  /// By one read, which stops the host.
  Content content(StreamView stream) const;
};

/// Largest |a - b| over the largest |b|; infinity where sizes differ or `a` has a NaN; 0 for empty.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace moecl::test
