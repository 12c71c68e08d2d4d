#pragma once
// Processes of MPI.
#include <memory>

#include "dispatch/processes/link.hpp"

namespace moecl {

/// @param mpi_comm  as RankGroup::from_mpi has it. @param deadline  a peer may be silent for less
/// @param name_of_node  out: the same for the ranks of a node, and for no other group
/// Errors: unsupported  no MPI, no plugin, or its threads; device_error
std::unique_ptr<Link> link_by_mpi(const void* mpi_comm, std::chrono::milliseconds deadline, std::string& name_of_node);

}  // namespace moecl
