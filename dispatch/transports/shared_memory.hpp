#pragma once
// Processes of one node: rings of bytes in memory that they share.
#include <memory>
#include <string>

#include "dispatch/processes/link.hpp"

namespace moecl {

/// Waits for all ranks of that name. @param deadline  For that, and what a peer may be silent for
/// Errors: as GroupMemory and GroupMemory::assemble
std::unique_ptr<Link> link_by_shared_memory(const std::string& name, std::int32_t rank, std::int32_t size,
                                            std::chrono::milliseconds deadline);

}  // namespace moecl
