#pragma once
// Which device each rank of a session runs on, and how ranks exchange.
#include <moecl/communicator.hpp>
#include <moecl/context.hpp>
#include <moecl/stream.hpp>
#include <moecl/sub_devices.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/device_options.hpp"

namespace moecl::cli {

/// The limit of one process. Every pair of ranks exchanges, so much larger groups take minutes for a few tokens.
constexpr int most_ranks = 256;

/// Contexts, and one stream per rank. Ranks take the devices in turn. CPU devices of one platform share a context,
/// since they share memory anyway; a GPU has its own context. With `sub_devices` a device of several ranks is divided
/// among them if possible.
struct RankDevices {
  std::vector<SubDevices> divided;
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<Stream> streams;  ///< of each rank of this process, without profiling
  std::string places;           ///< how ranks share devices, in words

  /// @param local  ranks of this process; empty: all
  /// Errors: no_device
  RankDevices(const DeviceOptions& options, int ranks, bool sub_devices = false, std::vector<int> local = {});
  std::vector<StreamView> views() const;
  /// Streams of the same devices that record times.
  std::vector<Stream> traced() const;

 private:
  std::vector<Device> divide(const std::vector<Device>& devices, int ranks);
};

/// Adds --transport, for every pair of ranks; unset: probed.
void add_transport(CLI::App& command, std::optional<TransportKind>& to);

}  // namespace moecl::cli
