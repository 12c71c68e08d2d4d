#pragma once
// One grouped product as data: its random operands on the host, on a device, and how exact the result must be.
#include <moecl/grouped_gemm.hpp>

#include <string>
#include <vector>

#include "tests/cases/operands.hpp"
#include "tests/oracle/grouped_gemm.hpp"

namespace moecl::test {

struct GroupedGemmCase {
  std::vector<std::int64_t> rows_of_expert;
  std::int64_t n = 0, k = 0;
  DType a = DType::f32, weights = DType::f32, out = DType::f32;
  std::int64_t rows_per_expert = 0;  ///< 0: standard layout
  std::int64_t invalid_rows = 0;     ///< that follow the valid ones (standard layout)
  std::int64_t divisor = 0;          ///< 0: rows of `a` are in order; else gathered, each by `divisor` slots
  bool bias = false;
  DType vectors = DType::f32;        ///< of weight_scale and bias
  std::int64_t extra_roundings = 0;  ///< of each product, in addition to those of its sum
  bool f8_steps = false;             ///< as Hopper's wgmma, which adds 32 products and a sum to 13 fraction bits
  PanelLayout layout = PanelLayout::n_major;

  std::string describe() const;
};

/// Random operands, rounded to their storage types. Rows of `a` that must not be read are NaN (or large, in i8).
GroupedProduct make_product(const GroupedGemmCase& shape, std::uint64_t seed);

/// The largest error, relative to what rounding allows. Allowed are f32 sums of K products in any order (exact in i8;
/// with `f8_steps`, each of 33 terms loses its part below 2^-13 of the largest term's exponent), and one rounding for
/// each scale, the bias and the storage type. At most 1 if the result is right; infinity if a row that must stay NaN
/// was written.
double grouped_gemm_error(const GroupedGemmCase& shape, const GroupedProduct& product, const std::vector<double>& got);

/// Packs [E, N, K] weights into a buffer of their own.
struct PackedOnDevice {
  Buffer buffer;
  PackedWeights weights;
  PackedOnDevice(StreamView stream, DType dtype, std::int64_t experts, std::int64_t n, std::int64_t k,
                 const std::vector<double>& values, PanelLayout layout = PanelLayout::n_major);
};

/// The operands of a case on a device.
class GroupedGemmOperands : public CaseTensors {
 public:
  GroupedGemmOperands(StreamView stream, const GroupedGemmCase& shape, const GroupedProduct& product,
                      Guards guards = Guards::none);

  grouped_gemm::Args args;

 private:
  PackedOnDevice packed_;
};

}  // namespace moecl::test
