#pragma once
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "tests/cases/grouped_gemm.hpp"
#include "tests/devices.hpp"

namespace moecl::test {

/// The operands of a case in guarded memory, in a form that each variant accepts.
class Operands : public GroupedGemmOperands {
 public:
  Operands(const TestDevice& device, const GroupedGemmCase& shape, const GroupedProduct& product)
      : GroupedGemmOperands(device.stream, shape, product, Guards::around), device_(device) {}

  /// Arguments that the variant accepts, if need be with rows of `a` aligned for the copies of tensor core variants.
  std::optional<grouped_gemm::Args> fitting(const char* variant) { return fitting(variant, args); }
  std::optional<grouped_gemm::Args> fitting(const char* variant, grouped_gemm::Args wanted) {
    if (grouped_gemm::reject(wanted, {variant}, device_.record()).empty()) return wanted;
    wanted.a = moved_rows(wanted.a);
    if (grouped_gemm::reject(wanted, {variant}, device_.record()).empty()) return wanted;
    return std::nullopt;
  }
  /// Elements that were not written are NaN, except elements of one byte: any byte may be a result.
  std::vector<double> out() const {
    Held held = this->held(args.out);
    if (!held.damage.empty()) ADD_FAILURE() << held.damage;
    for (std::size_t i = 0; i < held.values.size(); ++i)
      if (held.is_poison[i] && size_bytes(args.out.dtype) > 1)
        held.values[i] = std::numeric_limits<double>::quiet_NaN();
    return std::move(held.values);
  }

 private:
  /// Copies the rows to multiples of 16 bytes, with NaN behind each row.
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
  Buffer moved_;
};

/// Runs a product with every variant the device supports, or only with the selected one. Compares with the oracle.
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
