#pragma once
// One expert's bytes between the host and where they stand on a device.
#include <moecl/buffer.hpp>
#include <moecl/stream.hpp>

#include <cstddef>
#include <vector>

namespace moecl {

/// One after the other. Stops the host.
std::vector<std::byte> read_bytes(StreamView stream, const std::vector<BufferView>& parts);
/// As many bytes as all of them have. Stops the host.
void write_bytes(StreamView stream, const std::vector<BufferView>& parts, const std::byte* bytes);

}  // namespace moecl
