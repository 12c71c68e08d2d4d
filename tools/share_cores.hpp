#pragma once
// Cores that several processes of a command use.
#include <string>

namespace moecl::cli {

/// PoCL makes a thread for each core, in each process, and wakes them all for each command. Where so many processes of
/// this node are ranks, this one, the `process`th, takes its share of the cores, and no other's where there is one for
/// each and no launcher has bound it; unless PoCL's own variables say a number. Before the first use of OpenCL.
/// @return  What was chosen, to append to a sentence; empty: nothing was
std::string share_cores(int process, int processes);

}  // namespace moecl::cli
