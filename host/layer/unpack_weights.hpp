#pragma once
// Unpacks packed weights into a plain matrix, on the host.
#include <moecl/packed_weights.hpp>

#include <cstddef>
#include <vector>

namespace moecl {

/// The bytes of one expert, in the layout of PackedWeights. Absent parts are empty.
struct PackedBytes {
  std::vector<std::byte> codes, scale, zero, group_index;
};

/// Element `index` of `values`, which are of type `dtype`.
float number_at(const std::byte* values, DType dtype, std::int64_t index);

/// Shape: [N, K] f32. @param format  The packed weights of which `bytes` are one expert
std::vector<float> unpack_weights(const PackedWeights& format, const PackedBytes& bytes);

}  // namespace moecl
