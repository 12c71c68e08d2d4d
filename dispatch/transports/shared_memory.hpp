#pragma once
// Links between processes of one node: ring buffers in memory that they share.
#include <memory>
#include <string>

#include "dispatch/processes/link.hpp"

namespace moecl {

/// Waits for all ranks of the group `name`. @param ranks  of this process. @param deadline  for this wait, and for the
/// silence of a peer. Errors: as GroupMemory and GroupMemory::assemble
Links links_by_shared_memory(const std::string& name, const std::vector<std::int32_t>& ranks, std::int32_t size,
                             std::chrono::milliseconds deadline);

}  // namespace moecl
