#pragma once
// Random operands of the matmul operators, on the host and in guarded device memory.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "host/npu/steps.hpp"
#include "tests/host/npu_property.hpp"
#include "tests/oracle/grouped_gemm.hpp"
#include "tests/oracle/npu_matmul.hpp"

namespace moecl::test {

using npu::TensorList;

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Multiples of `step` in [least, most] * step: their products and sums stay exact in f32.
inline std::vector<double> grid(std::mt19937_64& engine, std::int64_t count, std::int64_t least, std::int64_t most,
                                double step = 1) {
  std::vector<double> values(at(count));
  for (double& value : values) value = static_cast<double>(between(engine, least, most)) * step;
  return values;
}
/// 2^-least to 2^-most.
inline std::vector<double> powers(std::mt19937_64& engine, std::int64_t count, std::int64_t least, std::int64_t most) {
  std::vector<double> values(at(count));
  for (double& value : values) value = std::ldexp(1.0, -static_cast<int>(between(engine, least, most)));
  return values;
}

/// Device memory that lives as long as a case.
class Inputs {
 public:
  explicit Inputs(const TestDevice& device) : device_(device) {}

  TensorView put(DType dtype, const std::vector<std::int64_t>& dims, const std::vector<double>& values) {
    kept_.push_back(
        std::make_unique<GuardedTensor>(upload(device_, dtype, {static_cast<std::int64_t>(values.size())}, values)));
    TensorView view = kept_.back()->view();
    npu::set_shape(view, dtype, dims);
    return view;
  }
  /// f32 in the low halves of 64 bits, with something else in the high ones.
  TensorView put_packed(const std::vector<std::int64_t>& dims, const std::vector<double>& values) {
    std::vector<double> packed;
    for (const double value : values) {
      const auto number = static_cast<float>(value);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &number, sizeof bits);
      packed.push_back(static_cast<double>(bits) + 0x1p40);
    }
    return put(DType::i64, dims, packed);
  }

 private:
  const TestDevice& device_;
  std::vector<std::unique_ptr<GuardedTensor>> kept_;
};

/// How weights lie in memory.
enum class Layout { tensor, list, transposed };

/// [E, K, N] codes as the operators take them; i32 packs int4 along the dimension that is contiguous.
inline TensorList put_weights(Inputs& inputs, DType dtype, Layout layout, std::int64_t k, std::int64_t n,
                              const std::vector<double>& codes) {
  const bool transposed = layout == Layout::transposed;
  const std::int64_t experts = static_cast<std::int64_t>(codes.size()) / (k * n);
  std::vector<double> stored = transposed ? oracle::columns_of(codes, k, n) : codes;
  std::int64_t rows = transposed ? n : k, columns = transposed ? k : n;
  if (dtype == DType::i32) {
    std::vector<double> words;
    for (std::size_t i = 0; i < stored.size(); i += 8) {
      std::uint32_t word = 0;
      for (unsigned j = 0; j < 8; ++j)
        word |= (static_cast<std::uint32_t>(static_cast<std::int32_t>(stored[i + j])) & 15u) << (4 * j);
      words.push_back(static_cast<std::int32_t>(word));
    }
    stored = words, columns /= 8;
  }
  TensorView view = inputs.put(dtype, {experts, rows, columns}, stored);
  if (transposed) std::swap(view.shape[1], view.shape[2]), std::swap(view.stride[1], view.stride[2]);
  if (layout != Layout::list) return {view};
  TensorList list;
  for (std::int64_t expert = 0; expert < experts; ++expert)
    list.push_back(npu::reshaped(view.rows(expert, 1), {rows, columns}));
  return list;
}

/// Row counts of E groups, some of them 0, and the group list that states them.
struct Groups {
  std::vector<std::int64_t> counts;
  std::int64_t sum = 0;
  TensorView list;
};
inline Groups random_groups(Inputs& inputs, std::mt19937_64& engine, std::int64_t experts, std::int64_t rows,
                            std::int64_t kind) {
  Groups groups;
  groups.counts.assign(at(experts), 0);
  std::int64_t left = one_of<std::int64_t>(engine, {rows, rows, between(engine, 0, rows)});
  for (; left > 0; --left) ++groups.counts[at(between(engine, 0, experts - 1) * between(engine, 0, 1))];
  std::vector<double> list;
  std::int64_t expert = 0;
  for (const std::int64_t count : groups.counts) {
    groups.sum += count;
    if (kind == 2 && count > 0) list.push_back(static_cast<double>(expert));
    if (kind != 2 || count > 0) list.push_back(static_cast<double>(kind == 0 ? groups.sum : count));
    ++expert;
  }
  if (kind == 2) list.resize(at(2 * experts));
  const DType dtype = one_of<DType>(engine, {DType::i64, DType::i64, DType::i32});
  groups.list =
      inputs.put(dtype, kind == 2 ? std::vector<std::int64_t>{experts, 2} : std::vector<std::int64_t>{experts}, list);
  return groups;
}

/// Rows [first, rows) of x [rows, K] get values that nothing may read.
inline void poison_rows(std::vector<double>& x, DType dtype, std::int64_t k, std::int64_t first) {
  std::fill(x.begin() + first * k, x.end(), dtype == DType::i8 ? 0x5a : std::nan(""));
}

/// Marks the first `count` of `rows` rows of `width` columns as defined.
inline std::vector<bool> defined_rows(std::int64_t count, std::int64_t rows, std::int64_t width) {
  std::vector<bool> defined(at(rows * width), true);
  std::fill(defined.begin() + count * width, defined.end(), false);
  return defined;
}

}  // namespace moecl::test
