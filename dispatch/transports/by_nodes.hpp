#pragma once
// Processes of MPI on several nodes, of which those of one node share memory.
#include <memory>

#include "dispatch/processes/link.hpp"

namespace moecl {

/// Ranks of one node exchange by shared memory, others by MPI. Where no node has two, the link by MPI alone. All ranks
/// call it. @param mpi  of all ranks. @param name  the same for the ranks of a node and for no other group
/// Errors: as links_by_shared_memory
std::unique_ptr<Link> link_by_nodes(std::unique_ptr<Link> mpi, const std::string& name,
                                    std::chrono::milliseconds deadline);

}  // namespace moecl
