#pragma once
// Host addresses of device memory, for devices that use the host's memory.
#include <moecl/buffer.hpp>
#include <moecl/stream.hpp>

#include <cstddef>

namespace moecl {

/// Whether commands and host use the same memory, so that events alone order their accesses: true on PoCL's CPUs.
bool host_shares_memory(const Context& context);

/// The host address of a view's bytes, valid while the buffer lives. The context must share memory with the host. Stops
/// the host at the first call for a buffer. Threads: safe. Errors: device_error
std::byte* host_address(StreamView stream, const BufferView& view);

}  // namespace moecl
