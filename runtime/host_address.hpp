#pragma once
// Device memory that is the host's.
#include <moecl/buffer.hpp>
#include <moecl/stream.hpp>

#include <cstddef>

namespace moecl {

/// Whether commands and host use the same memory, so that events alone order them: on PoCL's CPUs.
bool host_shares_memory(const Context& context);

/// Where the bytes of a view are, for as long as its buffer lives. Of a context that shares memory with the host. Stops
/// the host at a buffer's first time. Threads: safe. Errors: device_error
std::byte* host_address(StreamView stream, const BufferView& view);

}  // namespace moecl
