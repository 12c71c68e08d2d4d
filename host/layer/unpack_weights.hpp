#pragma once
// Packed weights back into a plain matrix, on the host.
#include <moecl/packed_weights.hpp>

#include <cstddef>
#include <vector>

namespace moecl {

/// Of one expert, as PackedWeights has them; absent parts are empty.
struct PackedBytes {
  std::vector<std::byte> codes, scale, zero, group_index;
};

/// Element `index` of numbers of that type.
float number_at(const std::byte* values, DType dtype, std::int64_t index);

/// Shape: [N, K] f32. @param format  Whose bytes these are of one expert of
std::vector<float> unpack_weights(const PackedWeights& format, const PackedBytes& bytes);

}  // namespace moecl
