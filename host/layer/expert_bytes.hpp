#pragma once
// Copies the bytes of one expert between the host and its buffers on a device.
#include <moecl/buffer.hpp>
#include <moecl/stream.hpp>

#include <cstddef>
#include <vector>

namespace moecl {

/// Reads `parts` one after the other into one vector. Stops the host.
std::vector<std::byte> read_bytes(StreamView stream, const std::vector<BufferView>& parts);
/// Writes consecutive parts of `bytes`, which has as many bytes as all `parts` together. Stops the host.
void write_bytes(StreamView stream, const std::vector<BufferView>& parts, const std::byte* bytes);

}  // namespace moecl
