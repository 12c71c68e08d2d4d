#pragma once
// Links between processes of MPI.
#include <memory>

#include "dispatch/processes/link.hpp"
#include "dispatch/processes/mpi_process.hpp"

namespace moecl {

/// Links of the ranks of a process. Errors: device_error
Links links_by_mpi(const std::shared_ptr<MpiProcess>& process);

}  // namespace moecl
