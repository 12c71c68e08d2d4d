#pragma once
// Processes of one node: rings of bytes in memory that they share.
#include <memory>
#include <string>

#include "dispatch/processes/link.hpp"

namespace moecl {

/// Waits for all ranks of that name. @param ranks  of this process. @param deadline  For that, and what a peer may be
/// silent for. Errors: as GroupMemory and GroupMemory::assemble
Links links_by_shared_memory(const std::string& name, const std::vector<std::int32_t>& ranks, std::int32_t size,
                             std::chrono::milliseconds deadline);

}  // namespace moecl
