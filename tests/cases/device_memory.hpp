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
/// Values rounded to the storage type and back: what a device of that storage type sees.
std::vector<double> rounded(DType dtype, const std::vector<double>& values);
/// Standard normal values, the same for a seed everywhere.
std::vector<double> normal(std::size_t count, std::uint64_t seed);

/// Whether what stands around a tensor is watched.
enum class Guards : bool { none, around };

/// A contiguous tensor in memory of its own, whose elements are written and read as double, rounded to its storage
/// type.
struct DeviceTensor {
  Buffer buffer;
  TensorView view;

  /// With guards it begins at an odd element of a bigger buffer that is poisoned; without, what it holds is undefined.
  DeviceTensor(StreamView stream, DType dtype, std::initializer_list<std::int64_t> shape, Guards guards = Guards::none);
  DeviceTensor(StreamView stream, DType dtype, std::initializer_list<std::int64_t> shape,
               const std::vector<double>& values, Guards guards = Guards::none);
  operator TensorView() const noexcept { return view; }

  /// Its elements and its guards become half-words 0x7fc1: NaN in f32, f16 and bf16.
  void poison(StreamView stream) const;
  /// Whether the bytes of that element are those of the poison.
  bool is_poison(std::size_t element, const std::vector<unsigned char>& bytes) const;
  /// Stops the host.
  std::vector<double> values(StreamView stream) const;

  struct Content {
    std::vector<unsigned char> bytes;
    std::string damage;  ///< what was written around it; empty when nothing was
  };
  /// By one read, which stops the host.
  Content content(StreamView stream) const;
};

/// Largest |a - b| over the largest |b|; infinity where sizes differ or `a` has a NaN; 0 for empty.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace moecl::test
