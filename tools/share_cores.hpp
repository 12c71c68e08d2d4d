#pragma once
// Divides the cores among the processes of a command.
#include <string>

namespace moecl::cli {

/// In each process PoCL makes a thread per core, and wakes all of them for each command. Where `processes` processes of
/// this node are ranks, number `process` uses its share of the cores. It is bound to that share if each can have a core
/// and no launcher has bound it. PoCL's own variables override all this. Before the first use of OpenCL.
/// @return  what was chosen, to append to a sentence; empty: nothing
std::string share_cores(int process, int processes);

}  // namespace moecl::cli
