#pragma once
// Tests whether kernels of one device really reach the memory of another. The test runs in a program of its own, since
// a driver may crash there and this process has to go on.
#include <moecl/buffer.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace moecl::peer_probe {

/// The verdict on each pair (owner, user) of `device_uuid`s; empty if all bytes arrived.
using Verdicts = std::map<std::pair<std::string, std::string>, std::string>;

/// Tests all ordered pairs of those devices in a child process, which runs `program`. If the child crashes, hangs or is
/// missing, that is the verdict on every pair. Stops the host.
Verdicts of_devices(const std::vector<std::string>& uuids, const std::string& program);

/// The work of that program: prints one line for each pair.
void print_verdicts(const std::vector<std::string>& uuids);

/// `owned` and `seen` are the two sides' views of one memory. Kernels of `user` store into it through an argument and
/// through an address; `owner` reads it. Errors: device_error  other bytes arrived
void check_stores(StreamView owner, const Buffer& owned, StreamView user, const Buffer& seen);

}  // namespace moecl::peer_probe
