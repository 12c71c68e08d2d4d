#pragma once
// Links between processes of MPI on several nodes: processes of one node share memory.
#include <string>

#include "dispatch/processes/link.hpp"

namespace moecl {

/// Ranks of one node exchange by shared memory, others by MPI. Returns the links by MPI unchanged if this node has no
/// other process. All processes call it.
/// @param mpi   links of the ranks of this process. @param name  equal on the processes of a node, and unlike any other
/// group's
/// Errors: as links_by_shared_memory
Links links_by_nodes(Links mpi, const std::string& name, std::chrono::milliseconds deadline);

}  // namespace moecl
