#pragma once
#include <moecl/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

namespace moecl {

/// Fast, reproducible normal random values for weights. 16 random bits pick one of 65536 equally likely quantiles, so a
/// value costs one table look-up and lies within 4.33 standard deviations.
class NormalSource {
 public:
  explicit NormalSource(std::uint64_t seed);

  /// The values of a tensor. They depend on the seed and the name alone, not on earlier calls. Valid until the next
  /// call.
  /// @param dtype  f32, f16 or bf16.
  const std::byte* values(std::string_view name, DType dtype, std::uint64_t elements, float deviation);

 private:
  using Table = std::vector<std::byte>;  // the quantiles times the deviation, as `dtype`
  const Table& table(DType dtype, float deviation);

  std::uint64_t seed_;
  std::vector<float> quantiles_;
  std::map<std::pair<DType, float>, Table> tables_;
  std::vector<std::byte> buffer_;
};

}  // namespace moecl
