#pragma once
// Processes of MPI on several nodes, of which those of one node share memory.
#include <string>

#include "dispatch/processes/link.hpp"

namespace moecl {

/// Ranks of one node exchange by shared memory, others by MPI. Where this node has no other process, the links by MPI
/// alone. All processes call it.
/// @param mpi   of the ranks of this process. @param name  the same for the processes of a node and for no other group
/// Errors: as links_by_shared_memory
Links links_by_nodes(Links mpi, const std::string& name, std::chrono::milliseconds deadline);

}  // namespace moecl
