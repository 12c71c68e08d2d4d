#pragma once
// Whether kernels of one device really reach the memory of another: tried in a program of its own, since a driver may
// crash where this process has to go on.
#include <moecl/buffer.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace moecl::peer_probe {

/// Verdicts on (owner, user) by `device_uuid`; empty where everything arrived.
using Verdicts = std::map<std::pair<std::string, std::string>, std::string>;

/// All ordered pairs of those devices, in a child process. A child that crashes, hangs or is not there is every pair's
/// verdict. Stops the host.
Verdicts of_devices(const std::vector<std::string>& uuids, const std::string& program);

/// What that program does: prints a line a pair.
void print_verdicts(const std::vector<std::string>& uuids);

/// Kernels of `user` store into one memory, of which each side has its view, through an argument and through an
/// address; `owner` reads. Errors: device_error  other bytes arrived
void check_stores(StreamView owner, const Buffer& owned, StreamView user, const Buffer& seen);

}  // namespace moecl::peer_probe
