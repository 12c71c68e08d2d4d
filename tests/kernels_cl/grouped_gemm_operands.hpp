#pragma once
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "tests/cases/grouped_gemm.hpp"
#include "tests/devices.hpp"

namespace moecl::test {

/// The operands of a case in guarded device memory.
class Operands {
 public:
  Operands(const TestDevice& device, const GroupedGemmCase& shape, const GroupedProduct& product)
      : device_(device),
        packed_(device.stream, shape.weights, product.k_ends.empty() ? product.experts() : 1, shape.n, shape.k,
                product.weights),
        out_(device, shape.out, {product.rows, shape.n}) {
    const auto put = [&](DType dtype, std::initializer_list<std::int64_t> dims, const std::vector<double>& values) {
      return kept_.emplace_back(std::make_unique<GuardedTensor>(upload(device, dtype, dims, values)))->view();
    };
    const std::int64_t sources = static_cast<std::int64_t>(product.a.size()) / shape.k;
    const auto put_optional = [&](DType dtype, std::initializer_list<std::int64_t> dims,
                                  const std::vector<double>& values) {
      return values.empty() ? TensorView() : put(dtype, dims, values);
    };
    args.a = put(shape.a, {sources, shape.k}, product.a);
    args.a_index = put_optional(DType::i32, {product.rows}, product.index);
    args.index_divisor = static_cast<std::int32_t>(product.divisor);
    args.a_scale = put_optional(DType::f32, {sources}, product.a_scale);
    args.weights = packed_.weights;
    args.a_zero_point = static_cast<std::int32_t>(product.a_zero_point);
    args.weight_scale = put_optional(shape.vectors, {product.experts(), shape.n}, product.weight_scale);
    args.sum_bias = put_optional(DType::i32, {product.experts(), shape.n}, product.sum_bias);
    args.bias = put_optional(shape.vectors, {product.experts(), shape.n}, product.bias);
    args.a_scale_bias = product.a_scale_bias;
    args.k_ends = put_optional(DType::i32, {product.experts()}, product.k_ends);
    if (product.k_ends.empty()) args.row_ends = put(DType::i32, {product.experts()}, product.row_ends());
    args.rows_per_expert = product.rows_per_expert;
    args.out = out_;
  }

  grouped_gemm::Args args;
  /// As the variant takes them: if need be with rows of `a` moved to where tensor cores' copies want them.
  std::optional<grouped_gemm::Args> fitting(const char* variant) { return fitting(variant, args); }
  std::optional<grouped_gemm::Args> fitting(const char* variant, grouped_gemm::Args wanted) {
    if (grouped_gemm::reject(wanted, {variant}, device_.record()).empty()) return wanted;
    wanted.a = moved_rows(wanted.a);
    if (grouped_gemm::reject(wanted, {variant}, device_.record()).empty()) return wanted;
    return std::nullopt;
  }
  /// Elements that were not written are NaN.
  std::vector<double> out() const {
    std::vector<double> values = out_.values();
    if (args.out.dtype == DType::i32)
      std::replace(values.begin(), values.end(), double{0x7fc17fc1}, std::numeric_limits<double>::quiet_NaN());
    return values;
  }

 private:
  /// At multiples of 16 bytes, with NaN behind each.
  TensorView moved_rows(TensorView rows) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(rows.shape[1]) * size_bytes(rows.dtype);
    const std::uint64_t stride = (bytes + 16) / 16 * 16, count = static_cast<std::uint64_t>(rows.shape[0]);
    if (moved_.size_bytes() == 0) {
      std::vector<unsigned char> dense(count * bytes), padded(std::max<std::uint64_t>(count, 1) * stride, 0xff);
      read_blocking(device_.stream, rows.buffer, dense.data(), dense.size());
      for (std::uint64_t row = 0; row < count; ++row)
        std::copy_n(dense.begin() + static_cast<std::ptrdiff_t>(row * bytes), bytes,
                    padded.begin() + static_cast<std::ptrdiff_t>(row * stride));
      moved_ = Buffer(*device_.context, padded.size());
      write_blocking(device_.stream, moved_.view(), padded.data(), padded.size());
    }
    rows.buffer = moved_.view();
    rows.stride[0] = static_cast<std::int64_t>(stride / size_bytes(rows.dtype));
    return rows;
  }

  const TestDevice& device_;
  PackedOnDevice packed_;
  GuardedTensor out_;
  std::vector<std::unique_ptr<GuardedTensor>> kept_;
  Buffer moved_;
};

/// Runs a product with every variant that the device takes, or the one it gets, and compares with the oracle.
inline void check_product(const TestDevice& device, const GroupedGemmCase& shape, const GroupedProduct& product,
                          bool only_selected = false) {
  int ran = 0;
  for (const grouped_gemm::Variant& variant : grouped_gemm::variants()) {
    SCOPED_TRACE(testing::Message() << variant.name << ": " << shape.describe());
    Operands operands(device, shape, product);
    const auto args = operands.fitting(variant.name);
    if (!args) continue;
    if (only_selected && grouped_gemm::select(*args, {}, device.record()) != variant.name) continue;
    grouped_gemm::enqueue(device.stream, *args, {variant.name});
    EXPECT_LE(grouped_gemm_error(shape, product, operands.out()), 1);
    ++ran;
  }
  EXPECT_GT(ran, 0) << "no variant runs here";
}

}  // namespace moecl::test
